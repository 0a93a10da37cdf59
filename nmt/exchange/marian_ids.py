"""The ids of a side of a Marian model, as its files have them, and ours."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from nmt.data.vocab import BOS, EOS, PAD, SPECIALS, Vocabulary
from nmt.errors import Exit, UserError
from nmt.exchange.files import in_order, vocabulary
from nmt.storage import manifest

EOS_PIECE, UNK_PIECE, PAD_PIECE = "</s>", "<unk>", "<pad>"
SPECIAL = {EOS_PIECE, UNK_PIECE, PAD_PIECE}
_ESCAPED = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(.))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "N": "\x85"}
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f-\xa0]')


class MarianIds(NamedTuple):
    """The ids of one side."""

    vocabulary: Vocabulary
    order: list[int]  # of each of our ids but PAD and BOS: theirs
    start: int  # their id that the decoder starts with
    pad: int | None = None  # that of padding, where it is another

    @property
    def theirs(self) -> list[int]:
        """Their id of each of ours from BOS on, which is their start."""
        return [self.start, *self.order]

    def of(self, ids: Iterable[int]) -> list[int]:
        """Their ids of ours from BOS on."""
        theirs = self.theirs
        return [theirs[i - BOS] for i in ids]

    def never(self, ids: Iterable[int]) -> list[int]:
        """Their ids of forbidden ones of ours; what starts the decoder may also be their eos."""
        if self.pad is None:
            return self.of(i for i in ids if i != PAD)
        return [self.pad if i == PAD else self.order[i - EOS] for i in ids if i != BOS]

    def ours(self, ids: Iterable[int]) -> list[int]:
        """Our ids of theirs; their start becomes BOS."""
        numbers = {number: place for place, number in enumerate(self.theirs, start=BOS)}
        return [numbers[number] for number in ids]

    def rows(self, table: Tensor) -> Tensor:
        """The rows of their table [ids, ...] in our order; that of BOS is their start's."""
        first = torch.zeros_like(table[:1]) if self.pad is None else table[[self.pad]]
        return torch.cat([first, table[self.theirs]])

    def their_rows(self, table: Tensor) -> Tensor:
        """Our rows in the order of their ids; that of our padding has no place there."""
        rows = torch.zeros_like(table[BOS:])
        rows[self.theirs] = table[BOS:]
        if self.pad is not None:
            rows[self.pad] = table[PAD]
        return rows

    def to_json(self, padding: bool = True) -> dict[str, int]:
        """The contents of vocab.json, in the order of the ids; without that of padding if so."""
        eos, unk, *others = self.order
        ids = dict(zip(self.vocabulary.to_json(), others, strict=True))
        ids |= {EOS_PIECE: eos, UNK_PIECE: unk, **({PAD_PIECE: self.start} if padding else {})}
        return dict(sorted(ids.items(), key=lambda item: item[1]))


def read(where: Path) -> MarianIds:
    """Read the pieces of a side; UserError (65) for what is no vocabulary of that family."""
    return of(where, manifest.read(where, None))


def of(where: Path, ids: dict[str, Any], start: int | None = None) -> MarianIds:
    """The pieces of a side by their ids, of which `start` may be one that they do not name."""
    pieces = in_order(where, ids)
    needed = SPECIAL if start is None else SPECIAL - {PAD_PIECE}
    if missing := needed - ids.keys():
        raise UserError(f"{where}: has no {min(missing)}", Exit.DATA)
    pieces = [piece for piece in pieces if piece not in needed]
    order = [ids[piece] for piece in (EOS_PIECE, UNK_PIECE, *pieces)]
    return MarianIds(vocabulary(where, pieces), order, ids[PAD_PIECE] if start is None else start)


def without_padding(*vocabularies: Vocabulary) -> list[MarianIds]:
    """Ids as Marian itself gives them: </s>, <unk>, the pieces; that of padding is one beyond."""
    sizes = [2 + len(vocabulary) - SPECIALS for vocabulary in vocabularies]
    return [MarianIds(v, [*range(n)], n) for v, n in zip(vocabularies, sizes, strict=True)]


def numberings(*vocabularies: Vocabulary) -> list[MarianIds]:
    """Ids for the vocabularies of both sides: </s>, <unk>, the pieces, <pad>, as in OPUS-MT.

    Both sides want one id of padding. Where one has more pieces, it comes before the pieces.
    """
    sizes = [len(vocabulary) - SPECIALS for vocabulary in vocabularies]
    pad_last = len(set(sizes)) == 1
    first = 2 if pad_last else 3
    return [
        MarianIds(vocabulary, [0, 1, *range(first, first + size)], 2 + size if pad_last else 2)
        for vocabulary, size in zip(vocabularies, sizes, strict=True)
    ]


def of_sentencepiece(model: bytes) -> dict[str, int]:
    """The ids of a SentencePiece model."""
    p = SentencePieceProcessor(model_proto=model)
    special = {p.eos_id(): EOS_PIECE, p.unk_id(): UNK_PIECE}
    return {special.get(i, p.id_to_piece(i)): i for i in range(len(p))}


def parse_lines(data: bytes, where: Path) -> dict[str, int]:
    """The ids of Marian's own lines, `piece: id`, or `? piece` and `: id`.

    No library of YAML reads all of them: some pieces are characters that YAML does not allow.
    UserError (65) for what is none.
    """
    try:
        lines = data.decode().replace("\n: ", ": ").split("\n")
        halves = [line.removeprefix("? ").rsplit(":", 1) for line in lines if line.strip()]
        return {_plain(key.rstrip(" ")): int(number) for key, number in halves}
    except (ValueError, OverflowError):
        raise UserError(f"{where}: expected a piece and its id in each line", Exit.DATA) from None


def dump_lines(ids: Mapping[str, int]) -> bytes:
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
