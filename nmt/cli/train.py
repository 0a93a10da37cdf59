"""nmt-train: prepare the corpus if need be, train, and say what to type next."""

import logging
import sys
from typing import TYPE_CHECKING

from nmt.cli.words import run
from nmt.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nmt.cli.compose import Experiment

log = logging.getLogger(__name__)

USAGE = """
nmt-train [GROUP=OPTION ...] [KEY=VALUE ...]      train a translation model
nmt-train -m KEY=A,B,C                            one run for each value (Hydra sweep)
nmt-train --cfg job --resolve                     show the whole config and leave
nmt-train --config-dir DIR ...                    also look for options in DIR

  nmt-train                                       a small model on the embedded corpus
  nmt-train encoding=relative tau=8
  nmt-train encoding=[absolute,relative] name=both
  nmt-train data=multi30k data.root=my/multi30k model=small
  nmt-train data=files data.root=corpus data.source_language=de segmenter=unigram
  nmt-train -m encoding=absolute,relative,lstm seed=1,2,3

The same words again resume a run that was stopped; other words in its directory are refused.
"""


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train as the words say."""
    if {"-h", "--help"} & set(argv):
        from nmt.cli.help import page

        sys.stdout.write(page(USAGE))
        return
    if "--version" in argv:
        from nmt import __version__

        sys.stdout.write(f"nmt {__version__}\n")
        return
    from nmt.cli.compose import composed, experiment, jobs_of, split, through_hydra

    flags, words = split(argv)

    def job(cfg: "DictConfig") -> None:
        from hydra.core.hydra_config import HydraConfig

        own = list(HydraConfig.get().overrides.task)
        if code := run(lambda w: train(experiment(cfg, w)), own):
            sys.exit(code)

    if {"-m", "--multirun"} & set(flags):
        from nmt import build

        for asked in jobs_of(words):
            build.check(asked.settings)
    elif {"--cfg", "-c", "--info", "-i"} & set(flags):
        composed(words)
    if flags:
        through_hydra([*flags, *words], job)
        return
    cfg, sweep = composed(words)
    if sweep:
        through_hydra(words, job)
        return
    train(experiment(cfg, words))


def train(asked: "Experiment") -> None:
    """Check, open the run directory, prepare, fit; in this order, so that errors come early."""
    from nmt import build

    settings, directory = asked
    build.check(settings)
    from nmt.data.prepare import prepare
    from nmt.train.run import open_run
    from nmt.train.trainer import fit

    with open_run(directory, settings) as opened:
        outcome = opened.finished(settings)
        if outcome is None:
            prepared = prepare(settings.data, settings.segmenter)
            outcome = fit(settings, prepared, opened)
    if outcome.signal is not None:
        raise UserError(str(outcome), outcome.code)
    log.info("%s", outcome)
    sys.stdout.write(f"{directory}\n")
    _next(asked)


def _next(asked: "Experiment") -> None:
    """The commands that a user wants after training, on stderr beside the log."""
    from nmt.cli.texts import test_columns, test_texts

    source, target = test_texts(asked.settings)
    beside = test_columns(asked.settings)
    evaluated = f"{asked.run} --source {source} --reference {target}"
    log.info("next:  %s", " ".join(["nmt-translate", str(asked.run), source, *beside]))
    log.info("       %s", " ".join(["nmt-evaluate", evaluated, *beside]))


if __name__ == "__main__":
    sys.exit(main())
