"""The model that a run starts from (trainer.init_from): read for the run to have its settings."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from nmt.config import compose
from nmt.config.compose import Experiment
from nmt.config.inherit import START, Parent
from nmt.config.settings import Settings, freeze, thaw
from nmt.errors import Exit, UserError
from nmt.modeldir import read_settings
from nmt.system import manifest

CHECKPOINTS, CONFIG = "checkpoints", "config.json"  # in the directory of a run


def experiment_of(words: Iterable[str]) -> Experiment:
    """The experiment of overrides, with what its parent decides; UserError for a misfit."""
    return compose.experiment_of(words, read_parent)


def composed(overrides: Sequence[Override]) -> DictConfig:
    """The config of overrides, likewise, interpolations unresolved."""
    return compose.composed(overrides, read_parent)


def read_parent(path: Path, run: Path | None = None) -> Parent:
    """Read a parent's settings; if it is gone, those of the `run` that began from it.

    Raises UserError (65, 66) for a parent that cannot be read.
    """
    if not path.exists():
        begun = None if run is None or not (run / CONFIG).is_file() else _recorded(run / CONFIG)
        # by its name alone: its place may be spelled in other ways
        if begun is None or Path(begun.trainer.init_from or "").name != path.name:
            raise UserError(
                f"{path}: no such directory; give a run or a checkpoint, or, to resume a run that "
                "began from it, the name= of that run",
                Exit.NO_INPUT,
            )
        plain = freeze(begun)
        return Parent(plain, plain["data"])
    settings = freeze(read_settings(path))
    places = path.resolve(), path.resolve().parent.parent  # a run, or one of its checkpoints
    trained = next((p for p in places if (p / CHECKPOINTS).is_dir()), None)
    if trained is None or not (trained / CONFIG).is_file():
        return Parent(settings, None)
    return Parent(settings, freeze(_recorded(trained / CONFIG))["data"])


def _recorded(config: Path) -> Settings:
    """The settings that the config of a run records; raises UserError (65)."""
    try:
        return thaw(manifest.read(config))
    except UserError as error:
        raise UserError(f"{START}: {config}: {error}", Exit.DATA) from None
