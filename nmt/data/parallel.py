"""The same function on many tasks, in several processes, with results in the order of tasks."""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from nmt.errors import Exit, UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
AHEAD = 2  # tasks per process that wait or whose results wait: this bounds the memory


def in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result]:
    """Yield function(task) for each task; with one worker in this process.

    The first task that raises, in the order of tasks, raises here. UserError (71) if a process
    is killed.
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    # spawn: a forked child would inherit the locks of torch's and tokenizers' threads
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _ignore_interrupt)
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "data.workers: a process that prepares text was killed, perhaps for want of memory; "
            f"set data.workers below {workers}",
            Exit.NO_MEMORY,
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
