"""What a run takes over from the model that it starts from (trainer.init_from)."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from nmt import manifest
from nmt.config import Settings, thaw
from nmt.errors import Exit, UserError
from nmt.modelpath import locate, sealed
from nmt.overrides.options import Folders, path_of

START = "trainer.init_from"
TAKEN = ("segmenter", "data.normalize")  # always the parent's: they say how its text became ids


def inherited(
    plain: dict[str, Any], overrides: Sequence[Override], run: Path, folders: Folders = ()
) -> dict[str, Any]:
    """A plain config in which the parent decides on what no override and no encoding says.

    Its segmenter and normalisation are taken over, for its vocabulary numbers no other pieces; its
    model and its encoding are the defaults. Where the parent is gone, the run's own config.json
    says what was taken over. Raises UserError for an override of segmenter or normalisation, and
    (65, 66) for a parent that cannot be read.
    """
    for o in overrides:
        if o.key_or_group in TAKEN or o.key_or_group.startswith("segmenter."):
            raise UserError(
                f"{o.input_line}: with {START} text is cut as the parent cuts it; leave it out"
            )
    parent = _parent(Path(plain["trainer"]["init_from"]), run)
    known = asdict(parent)
    model = dict(plain["model"])
    given = {o.key_or_group for o in overrides}
    if "model" not in given:
        said = {key.removeprefix("model.") for key in given if key.startswith("model.")}
        said |= {key for option in _encodings(overrides) for key in _sets(option, folders)}
        model |= {key: value for key, value in known["model"].items() if key not in said}
    encoding = plain["encoding"]
    if not any(key == "encoding" or key.startswith("encoding.") for key in given):
        encoding = known["encoding"]
    data = {**plain["data"], "normalize": parent.data.normalize}
    return {
        **plain, "model": model, "encoding": encoding, "data": data,
        "segmenter": known["segmenter"],
    }  # fmt: skip


def _parent(start: Path, run: Path) -> Settings:
    """The settings of the parent; or of the run, which began with them."""
    own = run / "config.json"
    if own.is_file() and not start.exists():
        return thaw(manifest.parse(own.read_bytes(), own))
    directory = sealed(locate(start))
    try:
        return thaw(directory.json("config.json"))
    except UserError as error:
        raise UserError(f"{START}={start}: config.json: {error}", Exit.DATA) from None


def _encodings(overrides: Sequence[Override]) -> list[str]:
    """The options of encodings that the overrides choose."""
    values = [o.value() for o in overrides if o.key_or_group == "encoding"]
    return [str(one) for value in values for one in (value if isinstance(value, list) else [value])]


def _sets(option: str, folders: Folders) -> list[str]:
    """The keys of the model that an encoding's file sets, as `feedforward`."""
    loaded: Any = OmegaConf.load(path_of("encoding", option, folders))
    return [str(key) for key in loaded.get("model") or ()]
