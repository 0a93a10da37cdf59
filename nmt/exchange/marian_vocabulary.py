"""Marian's vocabularies: lines of YAML, one for each piece, or a SentencePiece model.

No library of YAML reads all of these files: some pieces are characters that YAML does not allow.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nmt.errors import Exit, UserError
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE

_ESCAPED = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(.))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "N": "\x85"}
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f-\xa0]')


def pieces(model: bytes) -> dict[str, int]:
    """The ids of a SentencePiece model."""
    p = SentencePieceProcessor(model_proto=model)
    special = {p.eos_id(): EOS_PIECE, p.unk_id(): UNK_PIECE}
    return {special.get(i, p.id_to_piece(i)): i for i in range(len(p))}


def parse(data: bytes, where: Path) -> dict[str, int]:
    """The ids of lines `piece: id`, or `? piece` and `: id`; UserError (65) for others."""
    try:
        lines = data.decode().replace("\n: ", ": ").split("\n")
        halves = [line.removeprefix("? ").rsplit(":", 1) for line in lines if line.strip()]
        return {_plain(key.rstrip(" ")): int(number) for key, number in halves}
    except (ValueError, OverflowError):
        raise UserError(f"{where}: expected a piece and its id in each line", Exit.DATA) from None


def dump(ids: Mapping[str, int]) -> bytes:
    """Those lines."""
    lines = (f'"{_SPECIAL.sub(_escaped, piece)}": {number}\n' for piece, number in ids.items())
    return "".join(lines).encode()


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\{character}" if character in '"\\' else f"\\x{ord(character):02x}"


def _plain(key: str) -> str:
    """A key without its quotes and escapes."""
    if len(key) > 1 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    if len(key) > 1 and key[0] == key[-1] == '"':
        return _ESCAPED.sub(_character, key[1:-1])
    return key


def _character(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    return chr(int(digits, 16)) if digits else _NAMED.get(match[4], match[4])
