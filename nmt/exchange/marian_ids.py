"""The ids of one side of a model, in its files and here."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from nmt.exchange.interface import invalid
from nmt.exchange.settings import in_order
from nmt.modeldir import in_file
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, Vocabulary

ABSENT = -1  # of an id that the engine does not have; as an index, of a row added at the end
EOS_PIECE, UNK_PIECE, PAD_PIECE = "</s>", "<unk>", "<pad>"
SPECIAL = {EOS_PIECE, UNK_PIECE, PAD_PIECE}


class MarianIds(NamedTuple):
    """The ids of one side."""

    vocabulary: Vocabulary
    numbers: list[int]  # the engine's id of each of ours, or ABSENT; that of BOS starts its decoder

    @property
    def size(self) -> int:
        """The number of the engine's ids."""
        return max(self.numbers) + 1

    @property
    def pad(self) -> int:
        """The engine's id of padding; if it has none, the one that starts the decoder."""
        return self.numbers[BOS if self.numbers[PAD] == ABSENT else PAD]

    @property
    def absent(self) -> list[int]:
        """Our special ids that the engine does not have, or that are its eos."""
        return [i for i in (PAD, BOS) if self.numbers[i] in (ABSENT, self.numbers[EOS])]

    def of(self, ids: Iterable[int]) -> list[int]:
        """The engine's ids of ours."""
        return [self.numbers[i] for i in ids]

    def ours(self, ids: Iterable[int]) -> list[int]:
        """Our ids of the engine's; one id for bos and eos becomes EOS."""
        ours = {number: i for i, number in enumerate(self.numbers)}
        return [ours[number] for number in ids]

    def never(self, ids: Iterable[int]) -> list[list[int]]:
        """Forbidden ids of ours as bad_words_ids, except a bos that is also the eos."""
        return [[self.numbers[i]] for i in ids if i not in self.absent]

    def rows(self, table: Tensor) -> Tensor:
        """Rows of the engine's table [ids, ...] in our order; zeros for ids that it lacks."""
        return torch.cat([table, torch.zeros_like(table[:1])])[self.numbers]

    def their_rows(self, table: Tensor) -> Tensor:
        """Our rows in the order of the engine's ids, without those that it lacks."""
        rows = table.new_zeros(self.size + 1, *table.shape[1:])
        rows[self.numbers] = table
        return rows[:-1]

    def to_json(self) -> dict[str, int]:
        """The contents of vocab.json, in the order of the ids."""
        _, start, eos, unk, *others = self.numbers
        ids = dict(zip(self.vocabulary.to_json(), others, strict=True))
        ids |= {EOS_PIECE: eos, UNK_PIECE: unk}
        ids |= {} if start == ABSENT else {PAD_PIECE: start}
        return dict(sorted(ids.items(), key=lambda item: item[1]))


def number(path: Path, pieces: Sequence[str], special: Sequence[int]) -> MarianIds:
    """The ids of a side, by the list of its pieces.

    `special`: the engine's ids of padding, start, end and unknown; the others become our pieces.
    """
    others = [i for i in range(len(pieces)) if i not in special]
    with in_file(path):
        return MarianIds(Vocabulary.from_json([pieces[i] for i in others]), [*special, *others])


def read(path: Path) -> MarianIds:
    """Read a vocabulary of Marian; UserError (65) for another file."""
    ids = parse(manifest.read_bytes(path), path)
    pieces = in_order(path, ids)
    if missing := {EOS_PIECE, UNK_PIECE} - ids.keys():
        raise invalid(path, f"has no {min(missing)}")
    return number(path, pieces, [ABSENT, ABSENT, ids[EOS_PIECE], ids[UNK_PIECE]])


def without_padding(vocabulary: Vocabulary) -> MarianIds:
    """Ids as Marian numbers them: </s>, <unk>, the pieces."""
    return MarianIds(vocabulary, [ABSENT, ABSENT, *range(2 + len(vocabulary) - SPECIALS)])


def with_padding(*vocabularies: Vocabulary) -> list[MarianIds]:
    """Ids for the vocabularies of both sides, as in OPUS-MT: </s>, <unk>, the pieces, <pad>.

    Both sides must have the same id of padding: it comes before the pieces if their numbers differ.
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


def parse(data: bytes, path: Path) -> dict[str, Any]:
    """The ids in a vocabulary of Marian; UserError (65) for another file.

    .spm, .json, .yml (lines `piece: id`, or `? piece` and `: id`), or else a piece in each line.
    """
    try:
        if path.suffix == ".spm":
            return of_sentencepiece(data)
        if path.suffix == ".json":
            return {str(piece): number for piece, number in json.loads(data).items()}
        lines = data.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
        if path.suffix not in (".yml", ".yaml"):
            return {line: number for number, line in enumerate(lines)}
        # libraries of YAML refuse the characters of some pieces
        lines = "\n".join(lines).replace("\n: ", ": ").split("\n")
        halves = [line.removeprefix("? ").rsplit(":", 1) for line in lines if line.strip()]
        return {_plain(key.rstrip(" ")): int(number) for key, number in halves}
    except (ValueError, OverflowError, AttributeError, RecursionError, yaml.YAMLError):
        raise invalid(path, "expected a piece and its id in each line") from None


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
