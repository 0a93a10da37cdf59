"""nmt-train: prepare the corpus if need be, train, and say what to type next."""

import argparse
import logging
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

from nmt.cli import help
from nmt.cli.command import run
from nmt.cli.help import Manual
from nmt.errors import PLUGIN_ERRORS, UserError, where_raised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from nmt.config.compose import Experiment
    from nmt.config.hydra_conf import Sweep
    from nmt.sweep import Launcher, PlannedRun
    from nmt.training.distributed import World

log = logging.getLogger(__name__)

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
    if options.shell_completion:
        complete(options.shell_completion)
        return
    from nmt.config.hydra_conf import lines_of, sweep_of
    from nmt.parent import experiment_of
    from nmt.training.distributed import connect_ranks

    with connect_ranks() as world:
        overrides = help.parse_overrides(options)
        sweep = sweep_of(overrides, options.multirun)
        if options.cfg:
            show_configs(sweep.jobs if sweep else [overrides], options.resolve)
        elif sweep is None:
            train(experiment_of(lines_of(overrides)), world)
        elif world.size > 1:
            raise UserError(f"{sweep}: many runs; start torchrun once for each")
        else:
            train_sweep(sweep, shlex.join(["nmt-train", *argv]))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options and overrides; raises UserError."""
    parser = help.make_parser(MANUAL)
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("-sc", "--shell-completion", choices=COMPLETION, metavar="install=SHELL")
    options = parser.parse_intermixed_args(argv)
    options.multirun |= "hydra.mode=MULTIRUN" in options.overrides
    return options


def show_configs(runs: "Sequence[Sequence[Override]]", resolve: bool) -> None:
    """Print the config of each run, as documents of a YAML stream."""
    from omegaconf import OmegaConf

    from nmt.config.hydra_conf import translating_errors
    from nmt.parent import compose_config

    texts = []
    for overrides in runs:  # all, before the first is shown
        with translating_errors(overrides):
            texts.append(OmegaConf.to_yaml(compose_config(overrides), resolve=resolve))
    sys.stdout.write("---\n".join(texts if len(texts) == 1 else ["", *texts]))


def complete(request: str) -> None:
    """Let Hydra complete a line, or print the script by which a shell asks for that."""
    import hydra

    from nmt.config.catalog import conf_dir
    from nmt.config.hydra_conf import MAIN

    start = hydra.main(version_base="1.3", config_path=str(conf_dir().resolve()), config_name=MAIN)
    typed = sys.argv
    sys.argv = [typed[0], "-sc", request]  # where `hydra.main`, the only public way in, reads it
    try:
        start(lambda cfg: None)()
    finally:
        sys.argv = typed


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
    """Train the unfinished runs of a sweep; then print all that are finished, or their table."""
    from nmt.evaluation import text
    from nmt.sweep import failure_error, plan_runs, prepare_corpora, train_all
    from nmt.tables import make_table, plan_table

    launch: Launcher | None = None if sweep.launcher == "basic" else launch_jobs
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


def launch_jobs(runs: "Sequence[PlannedRun]") -> None:
    """Train runs by the Hydra launcher that their overrides choose; a failure stops no other."""
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext

    from nmt.config.hydra_conf import compose, parse, reading_conf

    overrides = parse(runs[0].experiment.overrides)
    with reading_conf(overrides):
        cfg = compose(overrides)
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks(cfg))
        job = partial(train_job, list(runs))
        launcher = Plugins.instance().instantiate_launcher(context, job, cfg)
        runs_override = [line for line in runs[0].experiment.overrides if line.startswith("runs=")]
        try:
            launcher.launch([runs_override] * len(runs), initial_job_idx=0)
        except PLUGIN_ERRORS as error:
            log.warning("the launcher ended with %s", where_raised(error))


def train_job(runs: "Sequence[PlannedRun]", cfg: "DictConfig") -> None:
    """Train the run that has the number of this job, wherever the launcher has started it."""
    from hydra.core.hydra_config import HydraConfig

    run = runs[HydraConfig.get().job.num]
    with run.log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        main([*run.experiment.overrides])


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
        paths = [f"{n}={path}" for n, path in columns_of_test(settings).items() if n in read]
        columns = ["--columns", ",".join(paths)] if paths else []
        files = ["--source", source, "--reference", target, *columns]
        if len(trained) == 1:
            commands.append(["nmt-translate", *runs, source, *columns])
        commands.append(["nmt-evaluate", *runs, *(files if unnamed_files(settings) else [])])
    if is_child:
        (run,), engine = trained, trained[0].settings.trainer.target or "ctranslate2"
        commands.append(["nmt-export", str(run.run), f"out/{run.run.name}", "--to", engine])
    for i, words in enumerate(commands):
        log.info("%s  %s", "     " if i else "next:", shlex.join(words))


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
