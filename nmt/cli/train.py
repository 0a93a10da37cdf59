"""nmt-train: prepare the corpus if need be, train, and say what to type next."""

import logging
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING

from nmt.cli import help
from nmt.cli.command import run
from nmt.cli.help import Manual
from nmt.cli.parser import once
from nmt.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nmt.overrides.arguments import Arguments
    from nmt.overrides.compose import Experiment
    from nmt.overrides.sweep import Sweep
    from nmt.training.workers import Workers

log = logging.getLogger(__name__)

MANUAL = Manual(
    "nmt-train",
    """
nmt-train [GROUP=OPTION ...] [KEY=VALUE ...]      train a translation model
nmt-train -m KEY=A,B,C                            one run for each value (Hydra sweep)
nmt-train experiment=table2 scale=toy             a table of the paper: all its runs, and a report
nmt-train --cfg job --resolve                     show the whole config and leave
nmt-train --config-dir DIR ...                    also look for options in DIR
nmt-train --version

  nmt-train                                       a small model on the embedded corpus
  nmt-train encoding=relative tau=8
  nmt-train data=multi30k data.root=my/multi30k model=small
  nmt-train -m encoding=absolute,relative,lstm seed=1,2,3

The same arguments again resume a run that was stopped; others in its directory are refused.
""",
    """
  nmt-train encoding=[absolute,relative] name=both
  nmt-train data=files data.root=corpus data.source_language=de segmenter=unigram
  nmt-train run=R4 scale=toy                      one of the paper's ten runs
  nmt-train experiment=table3 scale=small data.root=corpus seed=1
  nmt-train experiment=table2 hydra/launcher=submitit_slurm       where that is installed

  torchrun --nproc_per_node=2 -m nmt.cli.train trainer.accumulate=2 ...
                                                  one run on two GPUs: they share the batches
  eval "$(nmt-train -sc install=bash)"            complete groups, options and keys by Tab
""",
)


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train what the arguments ask for: one run, a table of the paper, or a sweep by Hydra."""
    if help.asked_for(argv):
        sys.stdout.write(help.shown(MANUAL, argv))
        return
    if "--version" in argv:
        from nmt import __version__

        sys.stdout.write(f"nmt {__version__}\n")
        return
    from nmt.overrides.arguments import lines_of, parse
    from nmt.overrides.compose import Experiment
    from nmt.overrides.sweep import planned
    from nmt.training.workers import joined

    with joined() as workers:
        arguments = parse(argv)
        once(lines_of(arguments.overrides))
        if arguments.flags and workers.size > 1:
            raise UserError(f"{arguments.flags[0]}: not with several workers; leave torchrun away")
        if arguments.for_hydra:
            by_hydra(arguments)
            return
        plan = planned(arguments)
        if isinstance(plan, Experiment):
            train(plan, workers)
        elif workers.size > 1:
            raise UserError(f"{plan}: many runs; start torchrun once for each")
        elif plan.table:
            table(plan, arguments, argv)
        else:
            check_sweep(plan)
            by_hydra(arguments)


def train(experiment: "Experiment", workers: "Workers") -> None:
    """Train one run, print its directory, and say what to type next."""
    from nmt.training import session

    outcome = session.train(experiment.settings, experiment.run, workers, experiment.elsewhere)
    if not workers.rank:
        log.info("%s", outcome)
        sys.stdout.write(f"{experiment.run}\n")
        if experiment.parent is not None:
            beside_parent(experiment)
        next_commands(experiment)


def beside_parent(experiment: "Experiment") -> None:
    """Show what a child of experiment=lengthen wins and loses beside its parent."""
    from nmt.compare import text
    from nmt.experiments.lengthen import reports

    for about, report in reports(experiment):
        sys.stdout.write(f"\nThe test text, {about}:\n{text.blocks(report)}")
        sys.stdout.flush()


def table(plan: "Sweep", arguments: "Arguments", argv: list[str]) -> None:
    """Make a table of the paper, and show it; a launcher of Hydra trains its runs if chosen."""
    from nmt.compare import text
    from nmt.experiments.tables import make_table, plan_table

    launcher = None if plan.launcher == "basic" else partial(launch, arguments)
    reports, failed = make_table(plan_table(plan), shlex.join(["nmt-train", *argv]), launcher)
    for report in reports:
        sys.stdout.write(text.tables(report))
    sys.stdout.flush()
    if failed is not None:
        raise failed


def check_sweep(plan: "Sweep") -> None:
    """Raise UserError for the first run of a sweep that cannot be."""
    from nmt import build
    from nmt.overrides.sweep import check_directories, experiments_of

    experiments = experiments_of(plan)
    for each in experiments:
        build.check(each.settings)
    check_directories(experiments)


def by_hydra(arguments: "Arguments") -> None:
    """Let Hydra make a sweep, whose first run that fails ends it, or do what other flags say."""
    from nmt.cli import hydra_app
    from nmt.overrides.arguments import lines_of
    from nmt.overrides.compose import check_all
    from nmt.training.workers import ALONE

    if arguments.shows_config:
        check_all(arguments.overrides)

    def job(cfg: "DictConfig") -> None:
        if code := run(lambda _: train(_composed_by_hydra(cfg), ALONE), []):
            sys.exit(code)

    hydra_app.run([*arguments.flags, *lines_of(arguments.overrides)], job)


def launch(arguments: "Arguments", runs: list[str]) -> None:
    """Let Hydra's launcher train the runs of a table that `run=...` names, each with a log.

    A run that fails stops no other; who asks for the runs sees afterwards which are not finished.
    """
    from contextlib import redirect_stderr, redirect_stdout

    from nmt.cli import hydra_app
    from nmt.overrides.arguments import lines_of
    from nmt.training.workers import ALONE

    def job(cfg: "DictConfig") -> None:
        experiment = _composed_by_hydra(cfg)
        experiment.run.parent.mkdir(parents=True, exist_ok=True)
        path = experiment.run.with_name(f"{experiment.run.name}.log")
        with path.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
            run(lambda _: train(experiment, ALONE), [])

    try:
        hydra_app.run([*lines_of(arguments.overrides), *runs], job)
    except SystemExit as end:  # Hydra has written why
        if end.code:
            log.warning("the launcher ended with %s", end.code)


def _composed_by_hydra(cfg: "DictConfig") -> "Experiment":
    """The run that Hydra has composed and is about to make."""
    from hydra.core.hydra_config import HydraConfig

    from nmt.overrides.arguments import read
    from nmt.overrides.compose import experiment

    return experiment(cfg, read(HydraConfig.get().overrides.task))


def next_commands(experiment: "Experiment") -> None:
    """The commands that a user wants after training, on stderr beside the log."""
    from nmt.experiments.columns import columns_argument, columns_of_test
    from nmt.experiments.testsets import of_corpus

    source, target = of_corpus(experiment.settings)
    beside = columns_argument(columns_of_test(experiment.settings))
    run = str(experiment.run)
    evaluated = [run, "--source", source, "--reference", target, *beside]
    log.info("next:  %s", shlex.join(["nmt-translate", run, source, *beside]))
    log.info("       %s", shlex.join(["nmt-evaluate", *evaluated]))


if __name__ == "__main__":
    sys.exit(main())
