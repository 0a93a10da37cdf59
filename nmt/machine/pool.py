"""Processes that compute for this one, each with one thread: executors of concurrent.futures.

On Linux they are forked. Each then has the models and texts of this process in the very memory in
which they were read, and starts within hundredths of a second. After a fork no team of OpenMP's
threads may work that worked before it, and with one thread none does. What else a fork could break
are locks that another thread holds at that moment: see `may_fork`.
"""

import concurrent.futures
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from types import FrameType, TracebackType
from typing import Any, TypeVar

from nmt.errors import Exit, UserError
from nmt.machine.memory import keep_memory

Task = TypeVar("Task")
Result = TypeVar("Result")

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}  # reach the whole group; the parent acts
LOCKING = (  # code that holds locks while it computes
    threading.__file__,
    *(package.__path__[0] for package in (concurrent.futures, multiprocessing)),
)
AHEAD = 2  # tasks per worker that wait or whose results wait: this bounds the memory
_inherited: Sequence[Callable[..., Any]] = ()  # of a worker: what its parent named at the fork


def can_fork() -> bool:
    """Whether this system forks safely: libraries of macOS start threads of their own."""
    return sys.platform == "linux"


def may_fork() -> bool:
    """Whether no other thread of Python could hold a lock, and this process may have children."""
    return (
        can_fork()
        and threading.active_count() == 1
        and not multiprocessing.current_process().daemon
    )


class InProcess(Executor):
    """An executor without workers: `submit` makes the call at once, in this process."""

    count = 0

    def submit(
        self, function: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Future[Result]:
        """Call the function; the future that is returned is done."""
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class WorkerPool(ProcessPoolExecutor):
    """Workers that start and end with a `with` block, and end if this process is killed.

    The block raises UserError (71) if a worker is killed; tasks that were not done are lost. When
    the block ends, tasks still at work are stopped. Signals of the terminal are left to the parent.

    An interrupt (Ctrl-C) would leave a lock of the executor locked, and the end of the block would
    wait for it for ever, if Python raised it while the main thread holds one. There it ends the
    workers instead, so that whoever waits for a result goes on, and is raised when the block ends.
    """

    def __init__(
        self, count: int, option: str, advice: str, inherited: Sequence[Callable[..., Any]] = ()
    ) -> None:
        """`option` and `advice` are for errors: which setting is wrong, and what to do.

        `inherited` are functions, or methods of objects too large to be sent, that workers have by
        the fork. Others that are submitted must be those of a module, as for pickle.
        """
        context = multiprocessing.get_context("fork" if can_fork() else "spawn")
        super().__init__(count, context, _start, (inherited,))
        self.count, self._option, self._advice = count, option, advice
        self._inherited = list(inherited)
        self._children: set[multiprocessing.process.BaseProcess] = set()
        self._interrupted = False

    def __enter__(self) -> "WorkerPool":
        others = set(multiprocessing.active_children())
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # workers inherit this
        try:
            with warnings.catch_warnings():
                # Python sees numpy's and OpenMP's threads, none of which hold a lock while idle
                warnings.simplefilter("ignore", DeprecationWarning)
                for _ in range(self.count):  # the first starts all where they are forked
                    super().submit(os.getpid)
        except OSError as error:
            self._stop({*multiprocessing.active_children()} - others)
            reason = f"the system starts no further process ({error.strerror})"
            raise self._error(reason) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._children = {*multiprocessing.active_children()} - others
        if can_fork():  # all workers are there, and have its other copies
            self._result_queue._writer.close()  # type: ignore[attr-defined]
        self._watch = threading.Thread(target=_end_with_first, args=(self._children,), daemon=True)
        self._watch.start()
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        former = getattr(handler, "__self__", None)  # a pool that another thread has ended
        ended = isinstance(former, WorkerPool) and not former._children
        if main and (ended or handler is signal.default_int_handler):
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(self._children)
        self._watch.join()
        self._children = set()
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._interrupted:
            raise KeyboardInterrupt from None
        if isinstance(error, BrokenProcessPool):
            reason = "a worker was killed, as the system does for want of memory"
            raise self._error(reason) from None

    def _stop(self, children: Iterable[multiprocessing.process.BaseProcess]) -> None:
        """Kill the workers, which hold nothing that could be lost."""
        for child in children:
            child.kill()
        self.shutdown(cancel_futures=True)
        for child in children:
            child.join()

    def _interrupt(self, _: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, or end the workers where the main thread may hold a lock."""
        while self._children and frame is not None:  # none are left where another thread ended it
            if frame.f_code.co_filename.startswith(LOCKING):
                self._interrupted = True  # the block will raise it
                for child in self._children:
                    child.kill()
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    def _error(self, reason: str) -> UserError:
        return UserError(f"{self._option}: {reason}; {self._advice}", Exit.NO_MEMORY)

    def submit(self, function: Callable[..., Result], /, *args: Any) -> Future[Result]:  # type: ignore[override]
        """Have a worker call the function; the future raises its UserError unchanged."""
        if function in self._inherited:
            return super().submit(_call_inherited, self._inherited.index(function), *args)
        return super().submit(_call, function, *args)


def executor(
    count: int, option: str, advice: str, inherited: Sequence[Callable[..., Any]] = ()
) -> InProcess | WorkerPool:
    """Return `count` workers, or none where one would do; arguments as of WorkerPool.

    None in a daemon, such as a worker of multiprocessing.Pool, which may have no children.
    """
    alone = count == 1 or multiprocessing.current_process().daemon
    return InProcess() if alone else WorkerPool(count, option, advice, inherited)


def in_order(
    executor: InProcess | WorkerPool, function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result]:
    """Yield function(task) for each task, in the order of the tasks, of which a few are ahead."""
    ahead = max(1, AHEAD * executor.count)
    pending: deque[Future[Result]] = deque()
    for task in tasks:
        pending.append(executor.submit(function, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _start(inherited: Sequence[Callable[..., Any]]) -> None:
    """Prepare a worker: one thread, and another that ends it with its parent."""
    global _inherited
    _inherited = inherited
    os.environ["OMP_NUM_THREADS"] = "1"
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    keep_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_first(workers: Iterable[multiprocessing.process.BaseProcess]) -> None:
    """Kill all workers when one was killed.

    It may have written a part of a result, and hold the lock of that pipe: the executor would wait
    for the rest. When no process can write any more, it reads an end of file.
    """
    wait([worker.sentinel for worker in workers])
    for worker in workers:
        worker.kill()


def _end_with_parent() -> None:
    """Wait until the parent has ended, which a killed one cannot announce."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(Exit.PIPE)


def _call_inherited(number: int, *args: Any) -> Any:
    return _call(_inherited[number], *args)


def _call(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function; an error that cannot be pickled is replaced."""
    try:
        return function(*args)
    except Exception as error:
        try:
            ForkingPickler.loads(ForkingPickler.dumps(error))
        except Exception:
            raise RuntimeError("".join(traceback.format_exception_only(error))) from None
        raise
