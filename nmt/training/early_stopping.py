"""The end of a run that has not become better for some checkpoints."""

from typing import Any

from nmt.training.stateful import Stateful


class EarlyStopping(Stateful):
    """Counts checkpoints since the best one."""

    kept = ("best", "stalled")

    def __init__(self, patience: int, state: dict[str, Any] | None = None) -> None:
        """`patience`: checkpoints in a row without a new best; 0: any number of them."""
        self.patience = patience
        self.best: float | None = None
        self.stalled = 0
        self.load_state_dict(state or {})

    def observe(self, cost: float) -> None:
        """Take a checkpoint into account; the lower its cost, the better it is."""
        if self.best is None or cost < self.best:
            self.best, self.stalled = cost, 0
        else:
            self.stalled += 1

    @property
    def is_over(self) -> bool:
        """Whether training is to end."""
        return 0 < self.patience <= self.stalled
