"""How the batches of a text are searched: one after the other here, or by workers side by side.

Which batches there are, and so what a model finds, does not depend on how many workers there are.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from nmt.data.grouping import by_length
from nmt.decode.beam import Hypothesis
from nmt.decode.engine import Engine, Searcher
from nmt.decode.mbr import Choice, by_utility
from nmt.decode.source_limit import ALWAYS
from nmt.decode.sources import Source
from nmt.decode.workers import WorkerPool, may_fork
from nmt.machine.memory import memory_of

Window = TypeVar("Window")
Result = TypeVar("Result")

AHEAD = 2  # batches for each worker, at most, that wait, or whose lines wait for earlier ones
EACH = 2**30  # bytes of memory for each worker that nobody asked for


class Here:
    """A Searcher that searches in this process, when a result is asked for."""

    at_once, wants_more = 0, False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def search(
        self, sources: list[Source], limits: list[int], n_best: int
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Search later."""
        return partial(self.engine.search, sources, limits, n_best)

    def rank(self, texts: list[str]) -> Callable[[], list[Choice]]:
        """Rank later."""
        return partial(by_utility, texts)

    def attend(self) -> None:
        """There are no workers."""


class Forked:
    """A Searcher whose workers have an engine by a fork."""

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers

    @classmethod
    @contextmanager
    def of(cls, engine: Engine, count: int) -> Iterator["Forked"]:
        """Workers for as long as the block lasts; UserError (71) where no more can begin."""
        with WorkerPool(count, {"search": engine.search, "rank": by_utility}) as workers:
            yield cls(workers)

    def search(
        self, sources: list[Source], limits: list[int], n_best: int
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Have a worker search; giant sentences one after the other, as memory is for one."""
        giant = max(len(source.ids) for source in sources) > ALWAYS
        return self._workers.begin("search", sources, limits, n_best, large=giant)

    def rank(self, texts: list[str]) -> Callable[[], list[Choice]]:
        """Have a worker rank, before it searches for later lines."""
        return self._workers.begin("rank", texts, urgent=True)

    def attend(self) -> None:
        """Give workers that wait what there is to do."""
        self._workers.attend()

    @property
    def at_once(self) -> int:
        """How many workers there are."""
        return self._workers.count

    @property
    def wants_more(self) -> bool:
        """Whether workers could soon have nothing to do."""
        return self._workers.waiting < AHEAD * self._workers.count


class Threaded:
    """A Searcher for an engine that searches for several threads at a time."""

    def __init__(self, engine: Engine, pool: ThreadPoolExecutor, count: int) -> None:
        self.engine, self.at_once = engine, count
        self._pool = pool
        self._begun: list[Future[Any]] = []

    @classmethod
    @contextmanager
    def of(cls, engine: Engine, count: int) -> Iterator["Threaded"]:
        """Threads for as long as the block lasts, or the batch that each has begun."""
        pool = ThreadPoolExecutor(count)
        try:
            yield cls(engine, pool, count)
        finally:
            pool.shutdown(cancel_futures=True)

    def search(
        self, sources: list[Source], limits: list[int], n_best: int
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Have a thread search."""
        future = self._pool.submit(self.engine.search, sources, limits, n_best)
        self._begun.append(future)
        return future.result

    def rank(self, texts: list[str]) -> Callable[[], list[Choice]]:
        """Rank later, in this thread: Python has one at a time."""
        return partial(by_utility, texts)

    def attend(self) -> None:
        """Threads find by themselves what there is to do."""

    @property
    def wants_more(self) -> bool:
        """Whether threads could soon have nothing to do."""
        self._begun = [future for future in self._begun if not future.done()]
        return len(self._begun) < (1 + AHEAD) * self.at_once


class Searching:
    """An engine at work on one text, alone or by workers, for as long as a `with` block lasts."""

    def __init__(self, engine: Engine, workers: int | None) -> None:
        """`workers`: how many; None: as many as pay for a window."""
        self.engine, self.workers = engine, workers
        self._stack = ExitStack()
        self._searcher: Searcher | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def searcher(self, batches: int) -> Searcher:
        """Who searches: this process, until a window pays for workers, who then do to the end."""
        if self._searcher is not None:
            return self._searcher
        if not batches:
            return Here(self.engine)
        count = self.workers or _worth(batches, self.engine.most_workers)
        if count == 1:
            return Here(self.engine)
        self._searcher = self._stack.enter_context(self.engine.workers(count))
        return self._searcher

    def attend(self) -> None:
        """Give workers that wait what there is to do."""
        if self._searcher is not None:
            self._searcher.attend()

    def in_order(
        self,
        windows: Iterable[Window],
        begin: Callable[[Window], Callable[[], Result]],
        read_ahead: bool,
    ) -> Iterator[Result]:
        """The result of each window, in their order, `begin` having begun it.

        With `read_ahead`, windows are read while workers could soon have nothing to do; else
        a window is read when the result of the one before it is used up. What reading raises is
        raised behind the results of all windows that were read before.
        """
        stream = iter(windows)
        begun: deque[Callable[[], Result]] = deque()
        failed: Exception | None = None
        more = True
        while more or begun:
            while more and (not begun or (read_ahead and self._wants_more(len(begun)))):
                try:
                    begun.append(begin(next(stream)))
                except StopIteration:
                    more = False
                except Exception as error:
                    failed, more = error, False
            if begun:
                yield begun.popleft()()
        if failed is not None:
            raise failed

    def _wants_more(self, windows: int) -> bool:
        """Whether to read another window while so many are under way."""
        searcher = self._searcher
        if searcher is None or not searcher.at_once:
            return False
        return windows < 2 or (searcher.wants_more and windows < AHEAD * searcher.at_once)


def batches_of(lengths: Sequence[int], budget: int, least: int, shares: int) -> list[list[int]]:
    """Group the places 0, 1, ... by length; each group has at most `budget` tokens, padding in.

    Their number becomes a multiple of `shares`, or a little less, if that leaves them `least`
    tokens or more, and they become about equal: so as many cores have as much to do.
    """
    groups = by_length(lengths, budget)
    tokens = sum(len(group) * lengths[group[0]] for group in groups)
    even = -(-len(groups) // shares) * shares
    wanted = max(len(groups), min(even, tokens // least))
    if shares == 1 or wanted == 1:
        return groups
    low, high = 0, budget  # with `high` there are no more groups than wanted, with `low` there are
    while high - low > max(1, budget // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if len(by_length(lengths, middle)) <= wanted else (middle, high)
    return by_length(lengths, high)


def _worth(batches: int, most: int) -> int:
    """How many workers pay; 1: none does, and all threads work at one batch after the other."""
    if most == 1 or not may_fork():
        return 1
    most = min(most, max(1, memory_of(torch.device("cpu")) // EACH))
    return min(batches, most) if 2 * batches > most else 1
