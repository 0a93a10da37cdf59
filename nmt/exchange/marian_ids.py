"""The ids of a side of a Marian model, as its files have them, and ours."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from nmt.errors import Exit, UserError
from nmt.exchange.settings import in_order, vocabulary
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, Vocabulary

ABSENT = -1  # in the place of an id that a family does not have: that of a row behind theirs
EOS_PIECE, UNK_PIECE, PAD_PIECE = "</s>", "<unk>", "<pad>"
SPECIAL = {EOS_PIECE, UNK_PIECE, PAD_PIECE}


class MarianIds(NamedTuple):
    """The ids of one side."""

    vocabulary: Vocabulary
    theirs: list[int]  # their id of each of ours, or ABSENT; that of BOS starts their decoder

    @property
    def size(self) -> int:
        """How many ids they have."""
        return max(self.theirs) + 1

    @property
    def pad(self) -> int:
        """Their id of padding: where no other is, that which starts the decoder."""
        return self.theirs[BOS if self.theirs[PAD] == ABSENT else PAD]

    @property
    def absent(self) -> list[int]:
        """Our special ids that they do not have, or for which they take that of eos."""
        return [i for i in (PAD, BOS) if self.theirs[i] in (ABSENT, self.theirs[EOS])]

    def of(self, ids: Iterable[int]) -> list[int]:
        """Their ids of ours."""
        return [self.theirs[i] for i in ids]

    def ours(self, ids: Iterable[int]) -> list[int]:
        """Our ids of theirs; one that starts the decoder and is that of eos, too, becomes EOS."""
        numbers = {number: place for place, number in enumerate(self.theirs)}
        return [numbers[number] for number in ids]

    def never(self, ids: Iterable[int]) -> list[list[int]]:
        """Forbidden ids of ours as bad_words_ids; what starts the decoder may also be their eos."""
        return [[self.theirs[i]] for i in ids if i not in self.absent]

    def rows(self, table: Tensor) -> Tensor:
        """The rows of their table [ids, ...] in our order; of ids that they do not have, zeros."""
        return torch.cat([table, torch.zeros_like(table[:1])])[self.theirs]

    def their_rows(self, table: Tensor) -> Tensor:
        """Our rows in the order of their ids; those that they do not have are left out."""
        rows = table.new_zeros(self.size + 1, *table.shape[1:])
        rows[self.theirs] = table
        return rows[:-1]

    def to_json(self) -> dict[str, int]:
        """The contents of vocab.json, in the order of the ids."""
        _, start, eos, unk, *others = self.theirs
        ids = dict(zip(self.vocabulary.to_json(), others, strict=True))
        ids |= {EOS_PIECE: eos, UNK_PIECE: unk}
        ids |= {} if start == ABSENT else {PAD_PIECE: start}
        return dict(sorted(ids.items(), key=lambda item: item[1]))


def number(where: Path, pieces: Sequence[str], special: Sequence[int]) -> MarianIds:
    """The ids of a side whose files say which piece each of them is.

    `special`: their ids of padding, start, end and unknown; the others become our pieces.
    """
    others = [i for i in range(len(pieces)) if i not in special]
    return MarianIds(vocabulary(where, [pieces[i] for i in others]), [*special, *others])


def read(where: Path) -> MarianIds:
    """The ids of a side in a vocabulary of Marian itself; UserError (65) for anything else."""
    ids = parse(manifest.read_bytes(where), where)
    pieces = in_order(where, ids)
    if missing := {EOS_PIECE, UNK_PIECE} - ids.keys():
        raise UserError(f"{where}: has no {min(missing)}", Exit.DATA)
    return number(where, pieces, [ABSENT, ABSENT, ids[EOS_PIECE], ids[UNK_PIECE]])


def without_padding(vocabulary: Vocabulary) -> MarianIds:
    """Ids as Marian itself gives them: </s>, <unk>, the pieces."""
    return MarianIds(vocabulary, [ABSENT, ABSENT, *range(2 + len(vocabulary) - SPECIALS)])


def with_padding(*vocabularies: Vocabulary) -> list[MarianIds]:
    """Ids for the vocabularies of both sides: </s>, <unk>, the pieces, <pad>, as in OPUS-MT.

    Both sides want one id of padding. Where one has more pieces, it comes before the pieces.
    """
    sizes = [len(vocabulary) - SPECIALS for vocabulary in vocabularies]
    pad_last = len(set(sizes)) == 1
    first = 2 if pad_last else 3
    return [
        MarianIds(v, [ABSENT, 2 + size if pad_last else 2, 0, 1, *range(first, first + size)])
        for v, size in zip(vocabularies, sizes, strict=True)
    ]


def of_sentencepiece(model: bytes) -> dict[str, int]:
    """The ids of a SentencePiece model."""
    p = SentencePieceProcessor(model_proto=model)
    special = {p.eos_id(): EOS_PIECE, p.unk_id(): UNK_PIECE}
    return {special.get(i, p.id_to_piece(i)): i for i in range(len(p))}


def parse(data: bytes, where: Path) -> dict[str, Any]:
    """The ids of a file; UserError (65) where it is no vocabulary of Marian.

    .spm, .json, .yml (lines `piece: id`, or `? piece` and `: id`), or else a piece in each line.
    """
    try:
        if where.suffix == ".spm":
            return of_sentencepiece(data)
        if where.suffix == ".json":
            return {str(piece): number for piece, number in json.loads(data).items()}
        lines = data.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
        if where.suffix not in (".yml", ".yaml"):
            return {line: number for number, line in enumerate(lines)}
        # no library of YAML reads all of them: it does not allow the characters of some pieces
        lines = "\n".join(lines).replace("\n: ", ": ").split("\n")
        halves = [line.removeprefix("? ").rsplit(":", 1) for line in lines if line.strip()]
        return {_plain(key.rstrip(" ")): int(number) for key, number in halves}
    except (ValueError, OverflowError, AttributeError, RecursionError, yaml.YAMLError):
        raise UserError(f"{where}: expected a piece and its id in each line", Exit.DATA) from None


def dump_lines(ids: Mapping[str, int]) -> bytes:
    """The lines of a .yml."""
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for piece, i in ids.items())
    return "".join(lines).encode()


def _plain(key: str) -> str:
    """A key without its quotes and escapes."""
    if len(key) > 1 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    if len(key) > 1 and key[0] == key[-1] == '"':
        with suppress(ValueError):  # YAML has more escapes, and takes some characters for others
            return str(json.loads(key))
        return str(yaml.safe_load(key))
    return key
