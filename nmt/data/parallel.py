"""The same function on many tasks, in several processes, with results in the order of tasks."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, TypeVar

from nmt.errors import Exit, UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
AHEAD = 2  # tasks per process that wait or whose results wait: this bounds the memory


def cores() -> int:
    """How many processes run at full speed."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Processes that start with the first task and serve until `with` ends; one: this process.

    They are not forked, since a fork would inherit the locks of torch's and tokenizers' threads.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = (
            ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _set_up)
            if workers > 1
            else None
        )

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def in_order(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Result]:
        """Yield function(task) for each task.

        The first task that raises, in the order of tasks, raises here. UserError (71) if a
        process is killed.
        """
        if not self._pool:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(self._pool.submit(function, task))
                if len(waiting) >= AHEAD * self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                "data.workers: a process that prepares text was killed, perhaps for want of "
                f"memory; set data.workers below {self._workers}",
                Exit.NO_MEMORY,
            ) from None
        finally:
            for future in waiting:  # else they would hold up the next tasks
                future.cancel()


def in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result]:
    """Yield function(task) for each task, from a pool for these tasks alone."""
    with Pool(workers) as pool:
        yield from pool.in_order(function, tasks)


def _set_up() -> None:
    """Prepare a process for its tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()


def _end_with(parent: Any) -> None:
    """End when the parent does: one that is killed cannot tell, and tasks would never come."""
    parent.join()
    os._exit(1)
