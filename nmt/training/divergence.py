"""Training that makes a model worse than guessing: a warning, and then the end.

A model that takes every piece to be equally likely has a perplexity of the size of the vocabulary.
"""

import logging

from nmt.training.stateful import Stateful

RISES = 3  # checkpoints in a row whose dev perplexity grows, or stays far above its lowest
FAR = 10.0  # times the lowest

log = logging.getLogger(__name__)


class Divergence(Stateful):
    """Watches the dev perplexity at checkpoints, after the first epoch or half of all updates.

    Training begins near the size of the vocabulary, and a small corpus may have few updates in an
    epoch: so what is up to twice as large is worth a warning only where it grows. The perplexity
    may also exceed the vocabulary, and grow, where a model learns a tiny corpus by heart, or where
    dev sentences are longer than those in training. Then that of training is low, and training
    goes on.
    """

    kept = ("dev", "lowest", "rises", "warned")

    def __init__(self, vocabulary: int, first: int) -> None:
        """`vocabulary`: of the target; `first`: the step that watching begins with."""
        self.vocabulary, self.first = vocabulary, first
        self.dev = 0.0  # perplexity at the checkpoint before
        self.lowest = 0.0  # of all checkpoints; 0: none yet, as JSON knows no infinity
        self.rises = 0
        self.warned = False

    def observe(self, step: int, dev: float, train: float) -> str | None:
        """Take a checkpoint into account; return why training is to end, if it is.

        `dev`: the perplexity; `train`: that of the updates since the checkpoint before, or NaN.
        """
        before, self.dev = self.dev, dev
        self.lowest = min(self.lowest or dev, dev)
        diverged = step >= self.first and dev > self.vocabulary and train > self.vocabulary
        grows = dev > before > 0
        rises = grows or dev > FAR * self.lowest  # up and down, but never back
        self.rises = self.rises + 1 if diverged and rises else 0
        guessing = f"worse than guessing ({self.vocabulary:,}, the size of the vocabulary)"
        bound = self.vocabulary if grows else 2 * self.vocabulary
        if step >= self.first and dev > bound and not self.warned:
            self.warned = True
            advice = "if it keeps growing, training stops; try a lower optim.lr"
            if not diverged:
                advice = (
                    f"{train:.4g} in training, so that goes on; more data, or dropout, may help"
                )
            log.warning("step %d: dev perplexity %.4g is %s; %s", step, dev, guessing, advice)
        if self.rises < RISES:
            return None
        return (
            f"the dev perplexity, {dev:.4g}, has grown or stayed far above its lowest, "
            f"{self.lowest:.4g}, at {self.rises} checkpoints in a row, and is {guessing}"
        )
