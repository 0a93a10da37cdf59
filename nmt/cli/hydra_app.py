"""Hydra as a program of its own: sweeps and launchers, --cfg, --info, shell completion.

Its only public way in, `hydra.main`, reads `sys.argv`; so this file alone sets it, for that long.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import hydra
from omegaconf import DictConfig

from nmt.config import conf_dir
from nmt.overrides.keys import ROOT


def run(arguments: Sequence[str], job: Callable[[DictConfig], None]) -> None:
    """Let Hydra do what the flags say; it composes the config of each `job` that it runs."""
    start = hydra.main(version_base="1.3", config_path=str(conf_dir().resolve()), config_name=ROOT)
    with _typed(arguments):
        start(job)()


@contextmanager
def _typed(arguments: Sequence[str]) -> Iterator[None]:
    typed = sys.argv
    sys.argv = [typed[0], *arguments]
    try:
        yield
    finally:
        sys.argv = typed
