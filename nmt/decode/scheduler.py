"""The executor of one text, and how a window is divided into batches for it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeAlias

from nmt.corpus.grouping import by_length
from nmt.decode.engine import Engine, Source
from nmt.decode.lines import Line
from nmt.decode.notes import Notes
from nmt.system.pool import AHEAD, Executor, WorkerPool
from nmt.system.resources import usable_memory

MEMORY_PER_WORKER = 2**30  # bytes, where the number of workers is left to this module

Call: TypeAlias = tuple[Sequence[int], Any]  # indices of its items, and what has done(), result()


class Window(NamedTuple):
    """Lines of which an engine translates the parts."""

    lines: Sequence[Line]
    calls: list[Call]  # of the engine's search, for all parts
    notes: Notes  # of these lines


class Scheduler(ExitStack):
    """Runs an engine in this process until a window is worth workers, which then do all."""

    def __init__(self, engine: Engine, workers: int | None) -> None:
        """`workers`: their number; None: as many as pay off for a window."""
        super().__init__()
        self.engine, self.workers = engine, workers
        self.running = 0  # workers
        self.executor: Executor = WorkerPool()

    def start(self, batches: int) -> None:
        """Start workers if so many batches are worth them; UserError if that is impossible."""
        if self.running or not batches:
            return
        most = self.engine.most_workers
        count = self.workers or count_workers(batches, most, usable_memory())
        if count > 1:
            self.executor = self.enter_context(self.engine.workers(count))
            self.running = count

    def in_order(self, windows: Iterable[Window], read_ahead: bool) -> Iterator[Window]:
        """The windows, which are submitted as they are read, in their order.

        With `read_ahead`, windows are read while workers could soon have nothing to do; otherwise
        a window is read when the one before it is used up. An error of reading is raised after all
        windows that were read before.
        """
        submitted: deque[Window] = deque()
        try:
            for window in windows:
                submitted.append(window)
                while submitted and not (read_ahead and self._wants_more(submitted)):
                    yield submitted.popleft()
        except Exception:
            yield from submitted
            raise
        yield from submitted

    def _wants_more(self, windows: Sequence[Window]) -> bool:
        """Whether to read another window while these are submitted."""
        pending = sum(not call.done() for window in windows for _, call in window.calls)
        few = pending < (1 + AHEAD) * self.running and len(windows) < AHEAD * self.running
        return self.running > 0 and (len(windows) < 2 or few)


def count_workers(batches: int, most: int, memory: int) -> int:
    """The number of workers that pay off for so many batches and bytes of memory; 1: none."""
    most = min(most, max(1, memory // MEMORY_PER_WORKER))
    # where few batches leave workers idle, all threads work at one batch after the other
    return min(batches, most) if 2 * batches > most else 1


def batches_of(lengths: Sequence[int], budget: int, least: int, parallel: int) -> list[list[int]]:
    """Group the indices of `lengths` by length; a group has at most `budget` tokens with padding.

    If each then has `least` tokens or more, their number becomes a multiple of `parallel`, or a
    little less, and they become about equal, so that all cores have as much to do.
    """
    groups = by_length(lengths, budget)
    tokens = sum(len(group) * lengths[group[0]] for group in groups)
    rounded = -(-len(groups) // parallel) * parallel
    count = max(len(groups), min(rounded, tokens // least))
    if parallel == 1 or count == 1:
        return groups
    low, high = 0, budget  # `high` makes no more groups than `count`, `low` does
    while high - low > max(1, budget // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if len(by_length(lengths, middle)) <= count else (middle, high)
    return by_length(lengths, high)


def submit_batches(
    executor: Executor,
    function: Callable[..., Any],
    items: Sequence[Any],
    groups: Iterable[Sequence[int]],
    *args: Any,
) -> list[Call]:
    """Submit a call for each group of the indices of `items`."""
    return [
        (group, executor.submit(function, [items[i] for i in group], *args)) for group in groups
    ]


def collect(calls: Iterable[Call]) -> list[Any]:
    """The results of the calls of all groups, in the order of the items."""
    by_index: dict[int, Any] = {}
    for group, call in calls:
        by_index.update(zip(group, call.result(), strict=True))
    return [by_index[index] for index in range(len(by_index))]


def compute_in_batches(
    executor: Executor, function: Callable[..., Any], pairs: Sequence[Source], budget: int
) -> list[Any]:
    """The results of a function for pairs, in batches of like length within `budget` tokens."""
    groups = by_length([pair.length for pair in pairs], budget)
    return collect(submit_batches(executor, function, pairs, groups))
