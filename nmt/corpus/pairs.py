"""A prepared corpus on disk: ids of both sides, memory-mapped, so that it may exceed the RAM."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.system import manifest

Ids = NDArray[np.uint16] | NDArray[np.uint32]
SIDES = ("source", "target")
HASHES = np.dtype("<u8")  # of the words of pairs
LINES = np.dtype("<u4")  # line numbers
OFFSETS = np.dtype("<u8")  # where each sequence starts, and the last one ends
COLUMN = np.dtype("<i4")  # integers in parallel with the source ids
MAXIMAL_UINT16 = 2**16


def id_type(*vocabulary_sizes: int) -> "np.dtype[Any]":
    return np.dtype("<u2" if max(vocabulary_sizes) <= MAXIMAL_UINT16 else "<u4")


class Corpora(NamedTuple):
    """The corpora that a text consists of, one after the other."""

    names: list[str]
    first: list[int]  # the number of the first line of each; numbers go on from one to the next
    tagged: list[bool]  # whether the sources of each begin with a tag


@dataclass(eq=False)
class Pairs:
    """Pairs of id sequences, each ending in EOS; all sequences of a side are concatenated."""

    lines: NDArray[np.uint32]  # [pair] line number, from 1; it goes on in the next corpus
    ids: Mapping[str, NDArray[Any]]  # by side: [ids of all pairs]
    offsets: Mapping[str, NDArray[Any]]  # by side: [pair + 1]
    per: Mapping[str, str] = field(default_factory=dict)  # column -> word or sentence
    columns: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)  # [source ids] or [pair]
    corpora: Corpora | None = None
    codes: frozenset[int] = frozenset()  # ids with which a source names the target language

    def __post_init__(self) -> None:
        # by side: [pair] pieces without EOS
        self.lengths = {s: np.diff(self.offsets[s]).astype(np.int32) - 1 for s in SIDES}

    def __len__(self) -> int:
        return len(self.lines)

    def pair(self, i: int) -> tuple[Ids, Ids]:
        """Return the source and target ids of pair i, both ending in EOS."""
        source, target = (
            self.ids[side][int(self.offsets[side][i]) : int(self.offsets[side][i + 1])]
            for side in SIDES
        )
        return source, target

    def corpus_of(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return which of the corpora some pairs are from [row]."""
        assert self.corpora is not None
        return np.searchsorted(self.corpora.first, self.lines[rows], "right") - 1

    def count_by_corpus(
        self, first: NDArray[np.integer[Any]], counts: NDArray[np.int64]
    ) -> list[int]:
        """Return how many pairs of each corpus some examples have; nothing of a single corpus."""
        if self.corpora is None:
            return []
        pairs = np.bincount(self.corpus_of(first), counts, len(self.corpora.names))
        return pairs.astype(int).tolist()

    @cached_property
    def languages(self) -> NDArray[np.integer[Any]]:
        """The code that each source begins with, after its tag [pair]; 0: none."""
        starts = self.offsets["source"][:-1].astype(np.int64)
        first = self.ids["source"][starts + self._tags(np.arange(len(self)))]
        return np.where(np.isin(first, [*self.codes]), first, 0)

    def count_leading(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return how many pieces come before the text of sources: tag, code of a language [row]."""
        return self._tags(rows) + (self.languages[rows] > 0 if self.codes else 0)

    def _tags(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return whether sources have the tag of a corpus, 0 or 1 [row]."""
        if self.corpora is None:
            return np.zeros(len(rows), np.int64)
        return np.array(self.corpora.tagged, np.int64)[self.corpus_of(rows)]

    def locate(self, row: int) -> str:
        """The line number of a pair in its file, after the name of its corpus if it has one."""
        if self.corpora is None:
            return str(self.lines[row])
        corpus = int(self.corpus_of(np.array([row]))[0])
        return f"{self.corpora.names[corpus]}:{self.lines[row] - self.corpora.first[corpus] + 1}"

    @classmethod
    def of_rows(
        cls,
        lines: NDArray[Any],
        rows: Mapping[str, Sequence[Sequence[int]]],
        dtype: "np.dtype[Any]",
        *args: Any,
    ) -> "Pairs":
        """Make pairs of lists of ids, by side; `args`: as of a new object."""
        ids = {s: np.fromiter(chain.from_iterable(rows[s]), dtype) for s in SIDES}
        offsets = {s: np.cumsum([0, *map(len, rows[s])]) for s in SIDES}
        return cls(lines, ids, offsets, *args)

    def select(self, rows: NDArray[np.integer[Any]]) -> "Pairs":
        ids, offsets, indices = {}, {}, {}
        for side in SIDES:
            starts = self.offsets[side][rows].astype(np.int64)
            lengths = self.offsets[side][rows + 1].astype(np.int64) - starts
            indices[side] = spans(starts, lengths)
            ids[side] = self.ids[side][indices[side]]
            offsets[side] = np.append(0, np.cumsum(lengths))
        columns = {
            name: values[rows if self.per[name] == "sentence" else indices["source"]]
            for name, values in self.columns.items()
        }
        return replace(self, lines=self.lines[rows], ids=ids, offsets=offsets, columns=columns)


def spans(starts: NDArray[np.integer[Any]], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, ... of each span, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) + np.repeat(starts - ends + lengths, lengths)


def read_pairs(path: Path, codes: frozenset[int] = frozenset()) -> Pairs:
    """Read pairs from a directory that was verified, without loading them all."""
    facts = manifest.read(path / "store.json", None)
    return Pairs(
        _map_file(path / "lines", LINES),
        {side: _map_file(path / f"{side}.ids", np.dtype(facts["dtype"])) for side in SIDES},
        {side: _map_file(path / f"{side}.offsets", OFFSETS) for side in SIDES},
        facts["columns"],
        {name: _map_file(path / f"column.{name}", COLUMN) for name in facts["columns"]},
        Corpora(*facts["corpora"]) if "corpora" in facts else None,
        codes,
    )


def write_pairs(
    path: Path,
    parts: Iterable[Pairs],
    dtype: "np.dtype[Any]",
    per: Mapping[str, str] | None = None,
    corpora: Corpora | None = None,
) -> None:
    """Write a store into a new directory, one part of its text after the other.

    `dtype`: of the ids; see `id_type`. `per`: see `Pairs`; each part has these columns.
    """
    path.mkdir(parents=True)
    pairs, ends, columns = 0, dict.fromkeys(SIDES, 0), dict(per or {})
    names = ["lines", *(f"{side}.{what}" for side in SIDES for what in ("ids", "offsets"))]
    names += [f"column.{name}" for name in columns]
    with ExitStack() as stack:
        files = {name: stack.enter_context((path / name).open("xb")) for name in names}
        for side in SIDES:
            files[f"{side}.offsets"].write(np.zeros(1, OFFSETS).tobytes())
        for part in parts:
            for side in SIDES:
                offsets = part.offsets[side][1:] + ends[side]
                ends[side] += int(part.offsets[side][-1])
                files[f"{side}.ids"].write(part.ids[side].astype(dtype, copy=False).tobytes())
                files[f"{side}.offsets"].write(offsets.astype(OFFSETS).tobytes())
            for name in columns:
                files[f"column.{name}"].write(part.columns[name].astype(COLUMN).tobytes())
            files["lines"].write(part.lines.astype(LINES).tobytes())
            pairs += len(part)
    facts: dict[str, Any] = {"dtype": dtype.str, "pairs": pairs, "columns": columns}
    facts |= {"corpora": corpora} if corpora else {}
    (path / "store.json").write_bytes(manifest.dump(facts))


def _map_file(path: Path, dtype: "np.dtype[Any]") -> NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
