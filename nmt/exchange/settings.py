"""A model from files of another engine: its settings, its pieces, its tensors.

Files may hold anything: each is read with one clear error. What they do not say, conf/ does.
"""

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config.check import fit, keys_of
from nmt.config.compose import experiment_of
from nmt.config.data import Segmentation
from nmt.config.settings import Decode, Settings, with_decode
from nmt.errors import UserError
from nmt.exchange.interface import invalid
from nmt.modeldir import Trained, model_of
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
UNNAMED = "und"  # ISO 639-2: undetermined


def settings_of(
    encoding: Sequence[str],
    decode: Mapping[str, Any],
    model: Mapping[str, Any],
    longest: int | None,
    shared: bool,
    languages: Sequence[str] = (UNNAMED, UNNAMED),
) -> Settings:
    """The settings of a training that would give the model.

    `encoding`: the overrides that choose it. `decode` and `model` have keys of those sections;
    `longest`: pieces of the longest source in training, None: unknown; `shared`: both sides have
    one vocabulary.
    """
    if model["tie"] == "all" and not shared:
        raise UserError("one matrix of embeddings, but source and target number pieces differently")
    composed = deepcopy(_compose(tuple(encoding)))
    settings = with_decode(composed, {"unknown": "allow", "length_penalty": "power", **decode})
    source, target = languages
    data = replace(settings.data, source_language=source, target_language=target)
    if longest:
        data = replace(data, max_length=longest)
    segmenter = Segmentation("imported", "none", shared_vocabulary=shared)
    shape = replace(settings.model, **model)
    return replace(settings, segmenter=segmenter, model=shape, data=data)


@cache  # Hydra takes longer than the rest of a small import
def _compose(encoding: tuple[str, ...]) -> Settings:
    data = ("data=files", "data.root=elsewhere", "data.name=imported", "data.normalize=none")
    return experiment_of((*data, *encoding)).settings


def fit_keys(path: Path, schema: type, values: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """nmt's keys with checked values, by the key of a file: nmt's key and the value."""
    kinds = keys_of(schema)
    try:
        return {key: fit(kinds[key].kind, value, name) for name, (key, value) in values.items()}
    except UserError as error:
        raise invalid(path, str(error)) from None


def make_trained(
    path: Path,
    settings: Settings,
    tensors: "dict[str, Tensor]",
    sides: Sequence[Side],
    longest: int | None,
) -> Trained:
    """The model with these tensors, under nmt's names; `longest`: see settings_of."""
    source, target = sides
    model = model_of(settings, source, target, tensors, path)
    return Trained(settings, model, source, target, {"longest_source": longest})


def order_pieces(path: Path, ids: Mapping[str, Any]) -> list[str]:
    """The pieces that a file numbers, in that order; UserError (65) for a missing number."""
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise invalid(path, f"expected the ids 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def read_unigram(kind: type[Unigram], path: Path, language: str) -> Unigram:
    """Read a segmenter from a SentencePiece model; UserError (65) for another file."""
    model = manifest.read_bytes(path)
    try:
        return kind(Tokenizer("none", "none", language), model)
    except (RuntimeError, OSError):
        raise invalid(path, "no SentencePiece model") from None


def sentencepiece_of(side: Side) -> bytes:
    """The SentencePiece model of a side that `exporting.prepare` checked."""
    assert isinstance(side.segmenter, Unigram)
    return side.segmenter.model


def warn_of_left_out(path: Path, values: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Log the search settings of a file that are not taken over; `usual`: without effect."""
    left_out = [f"{k}={values[k]}" for k, v in usual.items() if values.get(k, v) not in (v, None)]
    if left_out:
        log.warning(
            "%s: not taken over: %s; the keys under decode. have their own values",
            path, ", ".join(left_out),
        )  # fmt: skip


def warn_of_length_penalty(decode: Decode, engine: str) -> None:
    """Log if an engine divides by another function of the length than nmt."""
    if decode.beam_size > 1 and decode.length_penalty != "power" and decode.alpha:
        log.warning(
            "decode.length_penalty=%s: %s divides by length ** %g instead",
            decode.length_penalty, engine, decode.alpha,
        )  # fmt: skip
