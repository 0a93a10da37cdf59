"""What a run takes from the model that it starts from: overrides that stand before the user's."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from nmt.config import check
from nmt.config.catalog import ABOUT, Folders, chain_of, chosen_by, quote, values_of
from nmt.config.data import RECIPE, Data
from nmt.config.hydra_conf import chosen_options
from nmt.config.settings import is_path
from nmt.errors import UserError

START = "trainer.init_from"
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


def inherit(
    parent: Parent, path: Path, overrides: Sequence[Override], folders: Folders
) -> Iterator[str]:
    """What the parent is, as overrides, but for groups and keys that are chosen.

    Raises UserError for keys of the segmenter, whose pieces the vocabulary numbers, for those of an
    encoding that is not chosen, and for a parent that does not tell what it was trained on.
    """
    typed = {override.key_or_group: override for override in overrides}
    options = _choose_options(typed, folders)
    chosen = {*typed, *(group for group, _ in options)}
    _check_typed(typed, "encoding" in chosen, parent)
    decode, data = parent.settings["decode"], parent.data or parent.settings["data"]
    values: dict[str, Mapping[str, Any]] = {
        "segmenter": parent.settings["segmenter"],
        "decode": {key: decode[key] for key in ("source_language", "target_language")},
    }
    yield f"data.normalize={data['normalize']}"
    if "model" not in typed:  # nor does a scale choose its size
        values["model"] = parent.settings["model"]
    if "encoding" not in chosen:
        yield "~encoding"
        values["encoding"] = parent.settings["encoding"]
    if "data" not in chosen:
        if parent.data is None and "data.root" not in typed:
            raise UserError(
                f"{START}={path}: nothing in it tells where the text of its training lies; name "
                "the text to train on, as in data=files data.root=DIR, or data=toy"
            )
        yield f"data={data['kind']}"
        left_out = TREATMENT | _replaced_keys(typed)
        values["data"] = {key: value for key, value in data.items() if key not in left_out}
    files = [values_of(group, option, folders) for group, option in options if "$" not in option]
    for group, inherited in values.items():
        # a file that is chosen decides on its keys, such as encoding=universal on share_layers
        in_files = {name for file in files for name in file.get(group) or ()}
        for name, value in inherited.items():
            if group in ("segmenter", "encoding") or name not in in_files:
                yield f"++{group}.{name}={quote(value)}"


def _check_typed(typed: Mapping[str, Override], has_encoding: bool, parent: Parent) -> None:
    """Raise UserError for keys of the segmenter, and of an encoding that is not chosen."""
    for key, override in typed.items():
        if re.match(r"segmenter\b|data\.normalize$", key):
            line = override.input_line
            raise UserError(f"{line}: with {START} text is cut as the parent cuts it; leave it out")
        if not has_encoding and (key == "tau" or key.startswith("encoding.")):
            name = next(iter(parent.settings["encoding"]), "relative")
            raise UserError(
                f"{key}: with {START} the encoding is the parent's; name one to change its keys, "
                f"as encoding={name}, whose other keys are then the defaults of that option"
            )


def _choose_options(typed: Mapping[str, Override], folders: Folders) -> list[tuple[str, str]]:
    """Groups and options that are typed, and those that their files choose."""
    options = [(g, o) for g in ABOUT if g in typed for o in chosen_options(typed[g])]
    for group, option in options:  # which grows: an experiment may choose a scale
        parts = [] if "$" in option else chain_of(group, option, folders)  # as data=${scale}_zhen
        for part in parts:
            inner = chosen_by(group, part, folders)
            options += [each for each in inner if each[0] not in typed and each not in options]
    return options


def _replaced_keys(typed: Mapping[str, Override]) -> set[str]:
    """The keys of data that are not the parent's since overrides name other files."""
    keys = {key.removeprefix("data.") for key in typed}
    if keys & {"root", *RECIPE}:  # which all names are made of
        return {*FILES, "name", "columns", "corpora"}
    dev = {"dev_lines"} if keys & {"dev_source", "dev_target"} else set()
    return dev | ({"corpora"} if keys & {"train_source", "train_target"} else set())
