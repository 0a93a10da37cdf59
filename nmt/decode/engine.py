"""The interface of engines: they search for translations, and know ids but no text."""

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Protocol

from nmt.decode.search import Hypothesis
from nmt.decode.sources import ColumnsRead, Source
from nmt.errors import Exit, UserError


def too_much(batch_tokens: int, device: object) -> UserError:
    """The error (71) of a batch for which the memory of a device is too small."""
    return UserError(
        f"decode.batch_tokens={batch_tokens}: too much for the memory of {device}; "
        "give a smaller one, or a smaller decode.max_source",
        Exit.NO_MEMORY,
    )


class Engine(ColumnsRead, Protocol):
    """A model that searches for translations of sources.

    Its settings (`config.Decode`) are set once, and those that it does not support are refused.
    """

    @property
    def source_limit(self) -> int | None:
        """Ids of the longest source that its tables hold, EOS included; None: any length."""

    @property
    def target_limit(self) -> int | None:
        """Ids of the longest output that its tables hold, BOS or EOS included; None: any length."""

    @property
    def shares(self) -> int:
        """The number of batches to search at a time: one for each core, or 1 on a GPU."""

    @property
    def most_workers(self) -> int:
        """How many workers device and threads allow where none is requested; 1: none."""

    def workers(self, count: int) -> AbstractContextManager[Executor]:
        """Start so many workers (from 2) with one thread each; they call `search`.

        Raises UserError where they cannot be had.
        """

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Find n_best hypotheses or fewer, at least one, for each source of a batch; best first.

        Each begins with the prefix of its source. Samples come in the order in which they were
        drawn. None has more pieces than its source allows. Raises UserError (71) where memory is
        short.
        """
