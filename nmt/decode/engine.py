"""The interface of engines, which search for translations and know ids but no text."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.decode.sources import Source
from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.system.pool import Executor

Weights = NDArray[np.floating[Any]]


class Hypothesis(NamedTuple):
    """One output of the search."""

    ids: list[int]  # without bos and eos
    score: float  # log_prob / length_penalty + uncovered
    log_prob: float  # sum over the ids, and over eos if finished
    finished: bool  # false: cut at the limit, or (if shorter) where no score was finite
    uncovered: float = 0.0  # the coverage penalty, 0 or less


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
        if len(lengths) == 1:
            what, key = f"a line of {lengths[0]} pieces", "decode.max_source"
        else:
            what = f"a batch of {len(lengths)} lines of up to {max(lengths)} pieces"
            key = f"batch_tokens than {batch_tokens}"
        message = f"{what}: too much for the memory of {device}; give a smaller {key}"
        raise UserError(message, Exit.NO_MEMORY) from None


class Engine(Protocol):
    """A model that searches for translations of sources.

    Its settings (`config.Decode`) are set once, and those that it does not support are refused.
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
        """[target, source] of each pair: from each id of its target to those of its source.

        Raises UserError where the engine shows no attention (2), or memory is short (71).
        """
