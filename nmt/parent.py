"""What a run inherits from the model it starts from (trainer.init_from).

It is expressed as overrides that stand before the user's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from nmt.config import check, compose
from nmt.config.catalog import Folders, chain_of, choices_of, quote, values_of
from nmt.config.compose import START, Experiment
from nmt.config.data import TOY_KEYS, Data
from nmt.config.hydra_conf import typed_options
from nmt.config.settings import freeze, is_path
from nmt.errors import Exit, UserError
from nmt.modeldir import CHECKPOINTS, CONFIG, read_config, read_settings

FILES = {k for k in check.keys_of(Data) if is_path(f"data.{k}")} - {"cache"}
JOINING = {"join", "join_share", "join_length", "join_within"}
RANDOM_SEGMENTATION = {"bpe_dropout", "subword_alpha", "subword_nbest"}
# keys of data that do not say which text it is, but how it is used
TREATMENT = {"max_length", "cache", "workers", *JOINING, *RANDOM_SEGMENTATION}


def experiment_of(words: Iterable[str]) -> Experiment:
    """Compose the experiment of overrides and of a parent; UserError for wrong ones."""
    return compose.experiment_of(words, inherit)


def compose_config(overrides: Sequence[Override]) -> DictConfig:
    """Compose the config of overrides and of a parent, interpolations unresolved."""
    return compose.compose_config(overrides, inherit)


def inherit(
    path: Path, run: Path | None, overrides: Sequence[Override], folders: Folders
) -> Iterator[str]:
    """Yield a parent's settings as overrides, except for groups and keys that are chosen.

    If the parent is gone, the config of the `run` that began from it is read. Raises UserError for
    keys of the segmenter, which belongs to the vocabulary, and for a parent that cannot be read
    (65, 66) or names no training text.
    """
    settings, recorded = _read(path, run)
    typed = {override.key_or_group: override for override in overrides}
    options = _choose_options(typed, folders)
    chosen = {*typed, *(group for group, _ in options)}
    for key, override in typed.items():
        if re.match(r"segmenter\b|data\.normalize$", key):
            line = override.input_line
            raise UserError(f"{line}: with {START} text is cut as the parent cuts it; leave it out")
        if key == "tau" and "encoding" not in chosen:
            name = next(iter(settings["encoding"]), "relative")
            raise UserError(f"tau: only beside encoding=NAME; give encoding.{name}.tau=...")
    data = recorded or settings["data"]
    values: dict[str, Mapping[str, Any]] = {
        "segmenter": settings["segmenter"],
        "decode": settings["decode"],  # the search that suits its weights, and their languages
    }
    yield f"data.normalize={data['normalize']}"
    if "model" not in typed:  # nor does a scale choose its size
        values["model"] = settings["model"]
    if "encoding" not in chosen:
        yield "~encoding"
        values["encoding"] = settings["encoding"]
    if "data" not in chosen:
        if recorded is None and "data.root" not in typed:
            raise UserError(
                f"{START}={path}: nothing in it tells where the text of its training lies; name "
                "the text to train on, as in data=files data.root=DIR, or data=toy"
            )
        yield f"data={data['kind']}"
        left_out = TREATMENT | _replaced_keys(typed)
        values["data"] = {key: value for key, value in data.items() if key not in left_out}
    files = [
        {group: keys} if group == "decode" else keys  # other files name whole keys
        for group, option in options
        if "$" not in option and (keys := values_of(group, option, folders))
    ]
    for group, inherited in values.items():
        # a file that is chosen decides on its keys, such as encoding=universal on share_layers
        in_files = {name for file in files for name in file.get(group) or ()}
        for name, value in inherited.items():
            if group in ("segmenter", "encoding") or name not in in_files:
                yield f"++{group}.{name}={quote(value)}"


def _read(path: Path, run: Path | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a parent's settings, and its `data` with the paths of its training; None: unknown."""
    if not path.exists():
        begun = None if run is None or not (run / CONFIG).is_file() else read_config(run)
        # by its name alone: the path may be spelled in other ways
        if begun is None or Path(begun.trainer.init_from or "").name != path.name:
            raise UserError(
                f"{path}: no such directory; give a run or a checkpoint, or, to resume a run that "
                "began from it, the name= of that run",
                Exit.NO_INPUT,
            )
        plain = freeze(begun)
        return plain, plain["data"]
    settings = freeze(read_settings(path))
    candidates = path.resolve(), path.resolve().parent.parent  # a run, or one of its checkpoints
    trained = next((p for p in candidates if (p / CHECKPOINTS).is_dir()), None)
    if trained is None or not (trained / CONFIG).is_file():
        return settings, None
    return settings, freeze(read_config(trained))["data"]


def _choose_options(typed: Mapping[str, Override], folders: Folders) -> list[tuple[str, str]]:
    """List groups and options that are typed, and options that the files of these choose."""
    options = typed_options(typed)
    for group, option in options:  # which grows: an experiment may choose a scale
        parts = [] if "$" in option else chain_of(group, option, folders)  # as data=${scale}_zhen
        for part in parts:
            inner = choices_of(group, part, folders)
            options += [each for each in inner if each[0] not in typed and each not in options]
    return options


def _replaced_keys(typed: Mapping[str, Override]) -> set[str]:
    """Return the keys of data that are not inherited, as overrides name other files."""
    keys = {key.removeprefix("data.") for key in typed}
    if keys & {"root", *TOY_KEYS}:  # which all names are made of
        return {*FILES, "name", "columns", "corpora"}
    dev = {"dev_lines"} if keys & {"dev_source", "dev_target"} else set()
    return dev | ({"corpora"} if keys & {"train_source", "train_target"} else set())
