"""The loop of every search, over a function from tokens to log-probabilities.

It knows no model and no text. A `Strategy` says how outputs are extended: `beam.Beam` keeps the
best, `sampling.Sampling` draws at random.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from nmt.decode.hypothesis import Hypothesis
from nmt.machine.device import to_device, to_host

Step = Callable[[Tensor, Tensor | None], Tensor]
"""`step(tokens [rows], parents or None) -> log_probs [rows, vocab]`.

Before it reads `tokens`, the state of row i becomes that of the former row `parents[i]` (None: rows
stay as they are). That one call reorders the beams, and drops the rows of finished sentences.
`parents` [sentences, width] says that the rows of a line are of one sentence, and that sentences
keep their order; of `parents` [rows] nothing is known.
"""

NEVER = float("-inf")
CPU = torch.device("cpu")

# Steps between two checks which outputs have ended, where each check waits for a GPU, which then
# idles until the next operations reach it. Sentences that have ended keep their rows until then,
# 3.5 steps on average. On a CPU there is no such wait, and rows cost time: there it is 1.
CHECK_EVERY = 8


class Outputs:
    """The ids of open outputs and the hypotheses that were closed, on the host.

    Entries are sentences with `width` open outputs each, or single samples.
    """

    def __init__(self, entries: int) -> None:
        self.closed: list[list[Hypothesis]] = [[] for _ in range(entries)]
        self.entry = torch.arange(entries)  # [live] which of all entries
        self.ids = torch.empty(entries, 1, 0, dtype=torch.long)  # [live, width, length]

    def close(
        self,
        which: Tensor,
        log_probs: Tensor,
        penalty: float,
        *,
        finished: bool,
        parent: Tensor | None = None,
        uncovered: Tensor | None = None,
    ) -> None:
        """Close outputs that are marked in `which` [live, k], with their log_probs [live, k].

        `parent` [live, k]: the open outputs that they end; None: output j is number j. `uncovered`
        [live, width]: the coverage penalty of each output, if it ends now; None: there is none.
        """
        place, column = which.nonzero().unbind(1)
        if not place.numel():
            return
        output = column if parent is None else parent[place, column]
        lost = torch.zeros(len(place)) if uncovered is None else uncovered[place, output]
        values = (self.entry[place], self.ids[place, output], log_probs[place, column], lost)
        for entry, ids, log_prob, cost in zip(*(value.tolist() for value in values), strict=True):
            hypothesis = Hypothesis(ids, log_prob / penalty + cost, log_prob, finished, cost)
            self.closed[entry].append(hypothesis)

    def append(self, tokens: Tensor, parent: Tensor | None = None) -> None:
        """Extend open outputs by tokens [live, width], perhaps in another order [live, width]."""
        if parent is not None:
            self.ids = self.ids[torch.arange(len(parent))[:, None], parent]
        self.ids = torch.cat([self.ids, tokens[:, :, None]], dim=2)

    def keep(self, places: Tensor) -> None:
        """Drop all open entries but these."""
        self.entry, self.ids = self.entry[places], self.ids[places]


class Strategy(ABC):
    """How outputs are extended, and which hypotheses come of them; tensors are on the device."""

    sentences: int
    limits: Tensor  # [live] the greatest length of each output, without eos
    longest: int  # the greatest of them all
    outputs: Outputs

    @abstractmethod
    def extend(self, log_probs: Tensor, length: int) -> tuple[Any, Tensor, Tensor | None]:
        """Extend outputs of `length` ids by the log_probs [rows, vocab] of the next token.

        Returns a NamedTuple of tensors that `record` will read on the host, and the tokens and
        parents of the next step: [live, width] each, or [live].
        """

    @property
    @abstractmethod
    def is_open(self) -> Tensor:
        """Which entries go on [live]."""

    @abstractmethod
    def record(self, extension: Any) -> None:
        """Write an extension, whose tensors are on the host, into the outputs."""

    @abstractmethod
    def keep(self, places: Tensor) -> None:
        """Drop all entries but these."""

    @abstractmethod
    def hypotheses(self) -> list[list[Hypothesis]]:
        """Those of each sentence, when all outputs are closed."""


def search(
    step: Step,
    strategy: Strategy,
    bos: int,
    check_every: int | None = None,
) -> list[list[Hypothesis]]:
    """Extend outputs token by token until all are closed; the hypotheses of each sentence.

    The first call of `step` gets one row per sentence, later ones those of the strategy, side by
    side, on its device. Entries whose outputs are closed leave every `check_every` steps (None: the
    number that suits the device). The device is waited for only then; hypotheses are the same.
    """
    device = strategy.limits.device
    steps = check_every or (1 if device.type == "cpu" else CHECK_EVERY)
    outputs = strategy.outputs
    tokens = torch.full((strategy.sentences,), bos, device=device)
    parents: Tensor | None = None
    start = 0
    while len(outputs.entry):
        lengths = range(start, min(start + steps, strategy.longest + 1))  # of open outputs
        extensions = []
        for length in lengths:
            log_probs = step(tokens.flatten(), parents)
            extension, tokens, parents = strategy.extend(log_probs, length)
            extensions.append(extension)
        start = lengths.stop
        is_open, *values = to_host([strategy.is_open, *chain.from_iterable(extensions)])
        remaining = iter(values)
        for extension in extensions:
            strategy.record(type(extension)(*islice(remaining, len(extension))))
        places = is_open.nonzero()[:, 0]
        if len(places) < len(is_open):
            outputs.keep(places)
            places = to_device(places, device)
            strategy.keep(places)
            tokens = tokens[places]
            if parents is None:
                parents = places if tokens.dim() == 1 else places[:, None]
            else:
                parents = parents[places]
    return strategy.hypotheses()
