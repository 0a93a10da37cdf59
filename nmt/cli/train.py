"""nmt-train: prepare the corpus if need be, train, and say what to type next."""

import argparse
import logging
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING

from nmt.cli import help
from nmt.cli.command import run
from nmt.cli.help import Manual
from nmt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.override_parser.types import Override

    from nmt.config.compose import Experiment
    from nmt.config.sweeps import Sweep
    from nmt.sweep import Launcher
    from nmt.training.distributed import World

log = logging.getLogger(__name__)

INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
SHELLS = ("bash", "zsh", "fish")
COMPLETION = [f"{do}={shell}" for do in ("install", "uninstall", "query") for shell in SHELLS]
MANUAL = Manual(
    "nmt-train",
    """
nmt-train [GROUP=OPTION ...] [KEY=VALUE ...]      train a translation model
nmt-train -m KEY=A,B,C [jobs=N]                   one run for each value, N at once
nmt-train experiment=table2 scale=toy             a table of the paper: all its runs, and a report
nmt-train --cfg job --resolve                     show the whole config and leave
nmt-train --config-dir DIR ...                    also look for options in DIR
nmt-train --version

  nmt-train                                       a small model on the embedded corpus
  nmt-train encoding=relative tau=8
  nmt-train data=multi30k data.root=my/multi30k model=small
  nmt-train -m encoding=absolute,relative,lstm seed=1,2,3
  nmt-train -m 'encoding=glob(*)' experiment=compare              every encoding at one budget

The same command again resumes a run. Other settings in the directory of a run are an error.
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


def command(argv: list[str]) -> None:
    """Train what the arguments ask for: one run, the runs of a sweep, or a table of the paper."""
    options = parse_arguments(argv)
    if help.show_help(MANUAL, options):
        return
    from nmt.config.hydra_conf import lines_of
    from nmt.config.sweeps import sweep_of
    from nmt.parent import experiment_of
    from nmt.training.distributed import connect_ranks

    with connect_ranks() as world:
        overrides = help.parse_overrides(options)
        sweep = sweep_of(overrides, options.multirun)
        if options.flags:
            show(options, sweep.jobs if sweep and options.cfg else [overrides])
        elif sweep is None:
            train(experiment_of(lines_of(overrides)), world)
        elif world.size > 1:
            raise UserError(f"{sweep}: many runs; start torchrun once for each")
        else:
            train_sweep(sweep, shlex.join(["nmt-train", *argv]))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options, with the `flags` of Hydra that only show something; raises UserError."""
    parser = help.make_parser(MANUAL)
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    shows = parser.add_mutually_exclusive_group()
    shows.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    shows.add_argument("-i", "--info", nargs="?", const="all", choices=INFO)
    shows.add_argument("-sc", "--shell-completion", choices=COMPLETION, metavar="install=SHELL")
    options = parser.parse_intermixed_args(argv)
    options.multirun |= "hydra.mode=MULTIRUN" in options.overrides
    flags = {"--cfg": options.cfg, "--info": options.info, "-sc": options.shell_completion}
    options.flags = [part for flag, value in flags.items() if value for part in (flag, value)]
    if options.cfg and options.resolve:
        options.flags.append("--resolve")
    return options


def show(options: argparse.Namespace, runs: "Sequence[Sequence[Override]]") -> None:
    """Show the config of each run, or let Hydra do what its flags say."""
    from omegaconf import OmegaConf

    from nmt.cli import hydra_app
    from nmt.config.hydra_conf import lines_of, translating_errors
    from nmt.parent import compose_config

    texts = []
    for overrides in runs:  # all, before the first is shown
        if options.cfg == "job":
            with translating_errors(overrides):
                texts.append(OmegaConf.to_yaml(compose_config(overrides), resolve=options.resolve))
        elif not options.shell_completion:
            compose_config(overrides)
    for number, overrides in enumerate(runs):
        if len(runs) > 1:
            sys.stdout.write("---\n")  # parts the documents of a YAML stream
        if texts:
            sys.stdout.write(texts[number])
        else:
            hydra_app.run([*options.flags, *lines_of(overrides)])


def train(experiment: "Experiment", world: "World") -> None:
    """Train one run, print its directory, and say what to type next."""
    from nmt import lengthen
    from nmt.evaluation import text
    from nmt.exchange.exporting import refuse_target
    from nmt.training import run as training

    lengthen.check(experiment)
    outcome = training.train(experiment.settings, experiment.run, world, refuse_target)
    if not world.rank:
        log.info("%s", outcome)
        sys.stdout.write(f"{experiment.run}\n")
        is_child = lengthen.parent_of(experiment) is not None
        if is_child and (report := lengthen.report(experiment)):
            sys.stdout.write(text.render(report))
            sys.stdout.flush()
            lengthen.write(report, experiment.run)
        next_commands([experiment], is_child)


def train_sweep(sweep: "Sweep", command: str) -> None:
    """Train several runs, those that are not finished; then say which, or show their table."""
    from nmt.evaluation import text
    from nmt.sweep import failure_error, plan_runs, prepare_corpora, train_all
    from nmt.tables import make_table, plan_table

    launch: Launcher | None = None
    if sweep.launcher != "basic":
        from nmt.cli import hydra_app

        launch = partial(hydra_app.launch, main)
    if sweep.table:
        reports, error = make_table(plan_table(sweep), command, launch)
        for report in reports:
            sys.stdout.write(text.render(report))
    else:
        runs, left_out = plan_runs(sweep)
        for run_left_out in left_out:
            log.warning("left out: %s", run_left_out)
        finished, failed = train_all(runs, prepare_corpora(runs), launch)
        trained = [run.experiment for run in finished]
        sys.stdout.write("".join(f"{experiment.run}\n" for experiment in trained))
        next_commands(trained)
        error = failure_error(failed, len(runs)) if failed else None
    sys.stdout.flush()
    if error is not None:
        raise error


def next_commands(trained: "Sequence[Experiment]", is_child: bool = False) -> None:
    """Log the commands that come next: an evaluation of each corpus, with files if not named."""
    from nmt import build
    from nmt.config.settings import freeze
    from nmt.evaluation.testsets import columns_of_test, corpus_test_files, unnamed_files
    from nmt.system import manifest

    by_corpus: dict[bytes, list[Experiment]] = {}
    for experiment in trained:
        key = manifest.dump(freeze(experiment.settings)["data"])
        by_corpus.setdefault(key, []).append(experiment)
    commands = []
    for experiments in by_corpus.values():
        settings, runs = experiments[0].settings, [str(each.run) for each in experiments]
        source, target = corpus_test_files(settings)
        small = [build.shrink(each.settings) for each in experiments]
        read = {name for each in small for name in build.transformer(each, 8, 8).columns}
        files = [
            f"{name}={path}" for name, path in columns_of_test(settings).items() if name in read
        ]
        columns = ["--columns", ",".join(files)] if files else []
        evaluate = ["nmt-evaluate", *runs]
        if unnamed_files(settings):
            evaluate += ["--source", source, "--reference", target, *columns]
        if len(trained) == 1:
            commands.append(["nmt-translate", *runs, source, *columns])
        commands.append(evaluate)
    if is_child:
        (run,), engine = trained, trained[0].settings.trainer.target or "ctranslate2"
        commands.append(["nmt-export", str(run.run), f"out/{run.run.name}", "--to", engine])
    for i, words in enumerate(commands):
        log.info("%s  %s", "     " if i else "next:", shlex.join(words))


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
