"""Hydra as a program of its own: --cfg, --info and shell completion; and its launchers."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

import hydra
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext
from omegaconf import DictConfig

from nmt.config.catalog import conf_dir
from nmt.config.hydra_conf import ENTRY, ROOT, compose, parse, reading_conf
from nmt.errors import PLUGIN_ERRORS, where_raised

if TYPE_CHECKING:  # which imports torch
    from nmt.sweep import PlannedRun

log = logging.getLogger(__name__)

Train = Callable[[list[str]], int]  # nmt-train, as a function of its arguments


def run(arguments: Sequence[str]) -> None:
    """Let Hydra do what the flags say: show a config, or complete a line."""
    start = hydra.main(version_base="1.3", config_path=str(conf_dir().resolve()), config_name=ROOT)
    typed = sys.argv
    added = [f"++{a}" if ENTRY.match(a) else a for a in arguments]  # no file need have these keys
    sys.argv = [typed[0], *added]  # where `hydra.main`, the only public way in, reads them
    try:
        start(lambda cfg: None)()
    finally:
        sys.argv = typed


def launch(train: Train, runs: Sequence["PlannedRun"]) -> None:
    """Train runs by the Hydra launcher that their overrides choose; a failure stops no other."""
    overrides = parse(runs[0].experiment.overrides)
    with reading_conf(overrides):
        cfg = compose(overrides)
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks(cfg))
        job = partial(_train, train, list(runs))
        launcher = Plugins.instance().instantiate_launcher(context, job, cfg)
        runs_override = [line for line in runs[0].experiment.overrides if line.startswith("runs=")]
        try:
            launcher.launch([runs_override] * len(runs), initial_job_idx=0)
        except PLUGIN_ERRORS as error:
            log.warning("the launcher ended with %s", where_raised(error))


def _train(train: Train, runs: Sequence["PlannedRun"], cfg: DictConfig) -> None:
    """Train the run that has the number of this job, wherever the launcher has started it."""
    run = runs[HydraConfig.get().job.num]
    with run.log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        train([*run.experiment.overrides])
