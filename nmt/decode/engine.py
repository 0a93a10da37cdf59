"""What searches for translations: the side of a translator that knows ids and no text."""

from collections.abc import Callable
from typing import Protocol

from nmt.decode.beam import Hypothesis
from nmt.decode.sources import ColumnsRead, Source
from nmt.errors import Exit, UserError


def too_much(batch_tokens: int, device: object) -> UserError:
    """The error (71) of a batch for which the memory of a device is too small."""
    return UserError(
        f"decode.batch_tokens={batch_tokens}: too much for the memory of {device}; "
        "give a smaller one",
        Exit.NO_MEMORY,
    )


class Engine(ColumnsRead, Protocol):
    """A model, or what stands for one, below the lines, windows and parts of a Translator.

    It is made with its settings (`config.Decode`), and refuses those that it cannot follow.
    """

    @property
    def source_limit(self) -> int | None:
        """Ids of the longest source that its tables hold, EOS included; None: any length."""

    @property
    def target_limit(self) -> int | None:
        """Ids of the longest output that its tables hold, BOS or EOS included; None: any length."""

    def room(self, limit: Callable[[int], int], n_best: int) -> int:
        """Return how many pieces, eos apart, a source may have by the memory alone.

        `limit(pieces)` is the greatest length of its output, `n_best` what `search` will be asked
        for. Measured, so it may take seconds.
        """

    def search(
        self, sources: list[Source], limits: list[int], n_best: int
    ) -> list[list[Hypothesis]]:
        """Find n_best hypotheses or fewer, at least one, for each source of a batch; best first.

        Each begins with the prefix of its source. Samples come in the order in which they were
        drawn. None has more pieces than its limit, eos apart. Raises UserError (71) where memory is
        short.
        """
