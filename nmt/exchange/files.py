"""Files of other engines: data that may hold anything, so each is read with one clear error."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.checks import preflight
from nmt.config.settings import Settings
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained, in_file, model_of
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram
from nmt.text.vocab import Vocabulary


def trained_of(
    where: Path,
    settings: Settings,
    tensors: dict[str, Tensor],
    sides: Sequence[Side],
    longest: int | None,
) -> Trained:
    """The model that has these tensors, which are under our names.

    `longest`: pieces of the longest source in training, None: unknown. Raises UserError for
    tensors that do not fit (65), and what `preflight.check` does.
    """
    preflight.check(settings)
    source, target = sides
    model = model_of(settings, source, target, tensors, where)
    return Trained(settings, model, source, target, {"longest_source": longest})


def in_order(where: Path, ids: Mapping[str, Any]) -> list[str]:
    """The pieces that a file numbers, in that order; UserError (65) where a number is left out."""
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise UserError(f"{where}: expected the ids 0 to {len(ids) - 1}, each once", Exit.DATA)
    return sorted(ids, key=ids.__getitem__)


def vocabulary(where: Path, pieces: Sequence[str]) -> Vocabulary:
    """The vocabulary of a file; UserError (65) for what is no piece."""
    with in_file(where):
        return Vocabulary.from_json([*pieces])


def sentencepiece(kind: type[Unigram], where: Path, language: str) -> Unigram:
    """Read a segmenter from its SentencePiece model; UserError (65) where the file is none."""
    model = manifest.read_bytes(where)
    try:
        return kind(Tokenizer("none", "none", language), model)
    except (RuntimeError, OSError):
        raise UserError(f"{where}: no SentencePiece model", Exit.DATA) from None
