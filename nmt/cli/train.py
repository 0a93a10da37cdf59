"""nmt-train: prepare the corpus if need be, train, and say what to type next."""

import logging
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from nmt.cli.parser import once
from nmt.cli.words import run
from nmt.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nmt.data.prepare import Prepared
    from nmt.overrides.compose import Experiment, Sweep
    from nmt.training.workers import Workers

log = logging.getLogger(__name__)

USAGE = """
nmt-train [GROUP=OPTION ...] [KEY=VALUE ...]      train a translation model
nmt-train -m KEY=A,B,C                            one run for each value (Hydra sweep)
nmt-train experiment=table2 scale=toy             a table of the paper: all its runs, and a report
nmt-train --cfg job --resolve                     show the whole config and leave
nmt-train --config-dir DIR ...                    also look for options in DIR
nmt-train --version

  nmt-train                                       a small model on the embedded corpus
  nmt-train encoding=relative tau=8
  nmt-train encoding=[absolute,relative] name=both
  nmt-train data=multi30k data.root=my/multi30k model=small
  nmt-train data=files data.root=corpus data.source_language=de segmenter=unigram
  nmt-train -m encoding=absolute,relative,lstm seed=1,2,3
  nmt-train run=R4 scale=toy                      one of the paper's ten runs
  nmt-train experiment=table3 scale=small data.root=corpus seed=1
  nmt-train experiment=table2 hydra/launcher=submitit_slurm       where that is installed

The same words again resume a run that was stopped; other words in its directory are refused.

  torchrun --nproc_per_node=2 -m nmt.cli.train trainer.accumulate=2 ...
                                                  one run on two GPUs: they share the batches
"""


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train as the words say."""
    if {"-h", "--help"} & set(argv):
        from nmt.cli.help import page
        from nmt.overrides.options import folders_of
        from nmt.overrides.quoting import split

        words = split(argv)[1] if {"--config-dir", "-cd"} & set(argv) else []
        sys.stdout.write(page(USAGE, folders=folders_of(words) or ()))
        return
    if "--version" in argv:
        from nmt import __version__

        sys.stdout.write(f"nmt {__version__}\n")
        return
    from nmt.training.workers import joined

    with joined() as workers:
        _command(argv, workers)


def _command(argv: list[str], workers: "Workers") -> None:
    from nmt.overrides.compose import (
        composed,
        experiment,
        experiment_of,
        jobs_of,
        sweep_of,
    )
    from nmt.overrides.quoting import split

    flags, words = split(argv)
    once(words)
    if flags and workers.size > 1:
        raise UserError(f"{flags[0]}: not with several workers; leave torchrun away")
    many = None if set(flags) - {"-m", "--multirun"} else sweep_of(words)
    if many is not None and workers.size > 1:
        raise UserError(f"experiment={many.name}: many runs; start torchrun once for each")
    if many is not None and many.table:
        table(many, words, argv)
        return

    def job(cfg: "DictConfig") -> None:
        from hydra.core.hydra_config import HydraConfig

        own = list(HydraConfig.get().overrides.task)
        if code := run(lambda w: train(experiment(cfg, w)), own):
            sys.exit(code)

    if many is not None or {"-m", "--multirun"} & set(flags):
        from nmt import build

        for asked in [experiment_of(j) for j in many.jobs] if many else jobs_of(words):
            build.check(asked.settings)
    elif {"--cfg", "-c", "--info", "-i"} & set(flags):
        composed(words)
    if flags or many is not None:
        through_hydra([*flags, *words], job)
        return
    cfg, sweep = composed(words)
    if sweep and workers.size > 1:
        raise UserError("a sweep: not with several workers; start torchrun once for each run")
    if sweep:
        through_hydra(words, job)
        return
    train(experiment(cfg, words), workers)


def table(sweep: "Sweep", overrides: list[str], argv: list[str]) -> None:
    """Make a table of the paper, and show it."""
    from nmt.compare import text
    from nmt.experiments.tables import make_table

    chosen = None if sweep.launcher == "basic" else lambda more: launch([*overrides, *more])
    reports, failed = make_table(sweep, shlex.join(["nmt-train", *argv]), chosen)
    for report in reports:
        sys.stdout.write(text.tables(report))
    sys.stdout.flush()
    if failed is not None:
        raise failed


def through_hydra(words: list[str], job: "Callable[[DictConfig], None]") -> None:
    """Let Hydra itself run the job: sweeps (-m), --cfg, --info, completion."""
    import hydra

    from nmt.config import conf_dir

    sys.argv = [sys.argv[0], *words]
    hydra.main(version_base="1.3", config_path=str(conf_dir().resolve()), config_name="train")(
        job
    )()


def train(asked: "Experiment", workers: "Workers | None" = None) -> None:
    """Check, open the run directory, prepare, fit; in this order, so that errors come early."""
    from nmt import build

    settings, directory = asked.settings, asked.run
    build.check(settings)
    from nmt.training.run import open_run
    from nmt.training.trainer import fit
    from nmt.training.workers import ALONE

    workers = workers or ALONE
    with open_run(directory, settings, workers, asked.elsewhere) as opened:
        outcome = opened.finished(settings, lambda: _fingerprint(asked, workers))
        if outcome is None:
            outcome = fit(settings, _prepared(asked, workers), opened)
    if outcome.signal is not None:
        raise UserError(str(outcome), outcome.code)
    if workers.rank:
        return
    log.info("%s", outcome)
    sys.stdout.write(f"{directory}\n")
    next_commands(asked)


def launch(words: list[str]) -> None:
    """Let Hydra's launcher train the runs that the words mean, each with a log beside it.

    A run that fails stops no other; who asks for the runs sees afterwards which are not finished.
    """

    def job(cfg: "DictConfig") -> None:
        from contextlib import redirect_stderr, redirect_stdout

        from hydra.core.hydra_config import HydraConfig

        from nmt.overrides.compose import experiment

        own = list(HydraConfig.get().overrides.task)
        asked = experiment(cfg, own)
        asked.run.parent.mkdir(parents=True, exist_ok=True)
        told = asked.run.with_name(f"{asked.run.name}.log")
        with told.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
            run(lambda _: train(asked), own)

    from contextlib import redirect_stdout

    try:
        with redirect_stdout(sys.stderr):  # stdout is for the tables
            through_hydra(words, job)
    except SystemExit as end:  # Hydra has said why
        if end.code:
            log.warning("the launcher ended with %s", end.code)
    finally:  # Hydra has set up logging of its own
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s", force=True)


def _fingerprint(asked: "Experiment", workers: "Workers") -> str:
    """That of the corpus of a run whose updates are all made: worker 0 reads the text."""
    from nmt.data.prepare import fingerprint

    if workers.rank:
        return str(workers.hear())
    try:
        digest = fingerprint(asked.settings.data, asked.settings.segmenter)
    except UserError as error:
        raise UserError(
            f"{error}; {asked.run} is finished, but whether on this corpus cannot be seen without "
            "it (nmt-translate and nmt-evaluate need no corpus)",
            error.code,
        ) from None
    workers.tell(digest)
    return digest


def _prepared(asked: "Experiment", workers: "Workers") -> "Prepared":
    """The prepared corpus: worker 0 makes it, the others load it."""
    from pathlib import Path

    from nmt.data.prepare import load, prepare

    if workers.rank:
        return load(Path(workers.hear()))
    prepared = prepare(asked.settings.data, asked.settings.segmenter)
    workers.tell(str(prepared.path))
    return prepared


def next_commands(asked: "Experiment") -> None:
    """The commands that a user wants after training, on stderr beside the log."""
    from nmt.experiments.columns import columns_argument, columns_of_test
    from nmt.experiments.testsets import of_corpus

    source, target = of_corpus(asked.settings)
    beside = columns_argument(columns_of_test(asked.settings))
    evaluated = [str(asked.run), "--source", source, "--reference", target, *beside]
    log.info("next:  %s", shlex.join(["nmt-translate", str(asked.run), source, *beside]))
    log.info("       %s", shlex.join(["nmt-evaluate", *evaluated]))


if __name__ == "__main__":
    sys.exit(main())
