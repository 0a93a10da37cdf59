"""The interface of engines, which search for translations and know ids but no text."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.system.pool import Executor
from nmt.text.protection import ProtectedLine
from nmt.text.vocab import EOS

LENGTH = "length"  # the column of lengths in pieces: decode.target_length=given, length=forced
NOT_EOS = -1  # where an output may have any id but EOS

Weights = NDArray[np.floating[Any]]


class Source(NamedTuple):
    """A line as a model reads it, or a part of a line that is translated in parts."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of the line, from 0
    required: Sequence[int] = ()  # what its output has from the beginning on: ids, or NOT_EOS
    limit: int = 0  # ids of its output at most, without eos; unused where `target` is the output
    text: str = ""  # as the user wrote it; empty if nothing reads it again
    protected: ProtectedLine = ProtectedLine("", {})  # this text as the model reads it
    target: Sequence[int] = ()  # ids of an output to be scored or aligned, ending in EOS

    @property
    def pieces(self) -> int:
        """Ids without EOS."""
        return len(self.ids) - 1

    @property
    def length(self) -> int:
        """Ids of the longer side."""
        return max(len(self.ids), len(self.target))

    def cut(self, most: int | None) -> "Source":
        """The source with at most so many ids; None: all."""
        return self._replace(ids=cut(self.ids, most))


class Hypothesis(NamedTuple):
    """One output of the search."""

    ids: list[int]  # without bos and eos
    score: float  # log_prob / length_penalty + uncovered
    log_prob: float  # sum over the ids, and over eos if finished
    finished: bool  # false: cut at the limit, or (if shorter) where no score was finite
    uncovered: float = 0.0  # the coverage penalty, 0 or less


def cut(ids: list[int], most: int | None) -> list[int]:
    """The first ids of a text, at most so many with EOS; None: all."""
    return ids if most is None or len(ids) <= most else [*ids[: most - 1], EOS]


def within_table(pieces: int, table: int | None) -> int:
    """So many pieces, or as many as a position table holds next to eos or bos; None: any."""
    return pieces if table is None else min(pieces, table - 1)


def length_penalty(length: int, alpha: float, kind: str = "wu") -> float:
    """The divisor of log-probabilities; `length` counts eos.

    wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). power: length ** alpha, that of
    Marian (--normalize), transformers and CTranslate2; an output of no piece has that of one.
    """
    return ((5 + length) / 6 if kind == "wu" else max(1, length)) ** alpha


@contextmanager
def within_memory(lengths: Sequence[int], batch_tokens: int, device: object) -> Iterator[None]:
    """Raise UserError (71) if a batch of these lengths is too much for a device or the host."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        batch = f"a batch (lines: {len(lengths)}, pieces of the longest: {max(lengths)})"
        raise UserError(
            f"{batch}: too much for the memory of {device}; give a smaller batch_tokens than "
            f"{batch_tokens}, or decode.max_source",
            Exit.NO_MEMORY,
        ) from None


class Engine(Protocol):
    """A model that searches for translations of sources.

    Its settings (`config.Decode`) are set once; it refuses settings that it does not support.
    """

    columns: Set[str]  # that it reads
    column_ranges: Mapping[str, range]  # the integers that they may hold; without an entry: any
    source_limit: int | None  # ids of the longest source that it holds, with eos; None: any length
    target_limit: int | None  # of the longest output, with bos or eos
    parallel_batches: int  # batches to search at a time: one for each core, or 1 on a GPU

    @property
    def most_workers(self) -> int:
        """The greatest number of workers at present if none is requested; 1: none."""

    def workers(self, count: int) -> AbstractContextManager[Executor]:
        """Start so many workers (from 2) with one thread each; they call `search`.

        Raises UserError where they cannot be had.
        """

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Find n_best hypotheses or fewer, at least one, for each source of a batch; best first.

        Each begins with what its source requires. Samples come in the order in which they were
        drawn. None has more pieces than its source allows. Raises UserError (71) where memory is
        short.
        """

    def cross_attention(self, pairs: Sequence[Source]) -> list[Weights]:
        """[target, source] of each pair: from each id of its target to each id of its source.

        Raises UserError where the engine shows no attention (2), or memory is short (71).
        """
