"""What a run takes from the model that it starts from (trainer.init_from)."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict

from nmt.config import check
from nmt.config.data import RECIPE, Data
from nmt.config.hydra_conf import CHILD, compose_child, of_groups, parse
from nmt.config.settings import is_path
from nmt.errors import UserError

START = "trainer.init_from"
INHERITED = ("data", "segmenter", "model", "encoding")
FILES = {k for k in check.keys_of(Data) if is_path(f"data.{k}")} - {"cache"}
TREATMENT = {  # keys of data about the use of a text; the others say which text it is
    *("max_length", "join", "join_share", "join_length", "join_within"),
    *("bpe_dropout", "subword_alpha", "subword_nbest", "cache", "workers"),
}


class Parent(NamedTuple):
    """The model that a run starts from, in plain values."""

    settings: dict[str, Any]
    data: dict[str, Any] | None  # the text of its training, with its places; None: unknown


ReadParent = Callable[[Path, Path | None], Parent]  # given its path, and the run that is named


def compose_from(parent: Parent, path: Path, overrides: Sequence[Override]) -> DictConfig:
    """Compose with the parent's values in the place of defaults, for groups that nothing chooses.

    Raises UserError for keys of the segmenter, whose pieces the vocabulary numbers, for those of an
    encoding that is not chosen, and for a parent that does not tell what it was trained on.
    """
    for override in overrides:
        if re.match(r"segmenter\b|data\.normalize$", override.key_or_group):
            line = override.input_line
            raise UserError(f"{line}: with {START} text is cut as the parent cuts it; leave it out")
    if not any(override.key_or_group == "model" for override in overrides):
        overrides = [*parse([f"model={CHILD}"]), *overrides]  # nor does a scale choose its size
    chosen = compose_child(of_groups(overrides), INHERITED, {}).hydra.runtime.choices
    values: dict[str, Any] = {}
    if chosen["model"] == CHILD:
        values["model"] = parent.settings["model"]
    if not chosen["encoding"]:
        values["encoding"] = parent.settings["encoding"]
        _refuse_keys_of_encoding(parent, overrides)
    languages = ("source_language", "target_language")
    values["decode"] = {name: parent.settings["decode"][name] for name in languages}
    known = parent.data or parent.settings["data"]
    if not chosen["data"]:
        if parent.data is None and not any(o.key_or_group == "data.root" for o in overrides):
            raise UserError(
                f"{START}={path}: nothing in it tells where the text of its training lies; name "
                "the text to train on, as in data=files data.root=DIR, or data=toy"
            )
        other, overrides = _other_text(known["kind"], overrides)
        values["data"] = {k: v for k, v in known.items() if k not in TREATMENT | other}
    cfg = compose_child(overrides, INHERITED, values)
    with open_dict(cfg):
        cfg.segmenter, cfg.data.normalize = parent.settings["segmenter"], known["normalize"]
    return cfg


def _other_text(kind: str, overrides: Sequence[Override]) -> tuple[set[str], Sequence[Override]]:
    """The keys of data that are not the parent's since overrides name other files.

    And the overrides, with the option of those files before them.
    """
    keys = {o.key_or_group.removeprefix("data.") for o in overrides}
    if keys & {"root", *RECIPE}:  # which all names are made of
        return {*FILES, "name", "columns", "corpora"}, [*parse([f"data={kind}"]), *overrides]
    dev = {"dev_lines"} if keys & {"dev_source", "dev_target"} else set()
    return dev | ({"corpora"} if keys & {"train_source", "train_target"} else set()), overrides


def _refuse_keys_of_encoding(parent: Parent, overrides: Sequence[Override]) -> None:
    for override in overrides:
        key = override.key_or_group
        if key.startswith("encoding.") or key == "tau":
            name = next(iter(parent.settings["encoding"]), "relative")
            raise UserError(
                f"{key}: with {START} the encoding is the parent's; name one to change its keys, "
                f"as encoding={name}, whose other keys are then the defaults of that option"
            )
