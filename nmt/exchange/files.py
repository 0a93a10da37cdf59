"""Files of other engines: data that may hold anything, so each is read with one clear error."""

from pathlib import Path
from typing import Any, TypeVar

from nmt.data.tokenizer import Tokenizer
from nmt.data.unigram import Unigram
from nmt.errors import Exit, UserError
from nmt.storage import manifest

Segmenter = TypeVar("Segmenter", bound=Unigram)


def read_bytes(where: Path) -> bytes:
    """Read a file that a model cannot be without; UserError (65) where it is missing."""
    try:
        return where.read_bytes()
    except OSError as error:
        raise UserError(f"{where}: {error.strerror}; the model is incomplete", Exit.DATA) from None


def read_object(where: Path) -> dict[str, Any]:
    """Read a JSON object; UserError (65) for anything else."""
    values = manifest.parse(read_bytes(where), where)
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a JSON object", Exit.DATA)
    return values


def sentencepiece(kind: type[Segmenter], where: Path, language: str) -> Segmenter:
    """Read a segmenter from its SentencePiece model; UserError (65) where the file is none."""
    model = read_bytes(where)
    try:
        return kind(Tokenizer("none", "none", language), model)
    except (RuntimeError, OSError):
        raise UserError(f"{where}: no SentencePiece model", Exit.DATA) from None
