"""Processes that compute for this one, each with one thread: on Linux, where a fork is safe.

A forked process has the models and texts of this one in the very memory in which they were read,
and starts within hundredths of a second. After a fork no team of OpenMP's threads may work that
worked before it, and with one thread none does. What else a fork could break are locks that another
thread holds at that moment: see `may_fork`.

No thread of this process serves them, as in concurrent.futures: results are received while a result
is waited for. So an interrupt (Ctrl-C) leaves no lock locked, and a killed worker ends its pipe.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, Protocol, TypeVar

from nmt.errors import Exit, UserError
from nmt.system.resources import end_with_parent, keep_memory

Task = TypeVar("Task")
Result = TypeVar("Result")

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}  # reach the whole group; the parent acts
AHEAD = 2  # tasks per worker that wait or whose results wait: this bounds the memory
KILLED = "a worker was killed, as the system does for want of memory"
SMALL = 2**16  # bytes of a task that a pipe holds while its worker computes another


def can_fork() -> bool:
    """Whether this system forks safely: libraries of macOS start threads of their own."""
    return sys.platform == "linux"


def may_fork() -> bool:
    """Whether no other thread of Python could hold a lock, and this process may have children."""
    alone = threading.active_count() == 1
    return can_fork() and alone and not multiprocessing.current_process().daemon


class Executor(Protocol):
    """What makes calls: a WorkerPool, or the threads of concurrent.futures."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """Have a call made; returns an object with done() and result()."""


class Call(Generic[Result]):
    """A call of a function."""

    outcome: tuple[Any, Exception | None] | None = None  # result or error, once it has ended

    def __init__(self, receive: Callable[[float | None], None]) -> None:
        self._receive = receive

    def done(self) -> bool:
        self._receive(0)
        return self.outcome is not None

    def result(self) -> Result:
        """Wait for the end of the call; return its result or raise its error."""
        while self.outcome is None:
            self._receive(None)
        result, error = self.outcome
        if error is not None:
            raise error
        return result


class WorkerPool:
    """Workers that start and end with a `with` block, and end if this process is killed.

    A call raises UserError (71) if its worker is killed. When the block ends, calls still at work
    are stopped. Where one worker would do, in a daemon, which may have no children, and on other
    systems than Linux there are none: `submit` makes the call at once.
    """

    def __init__(
        self,
        count: int = 1,
        option: str = "",
        advice: str = "",
        inherited: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """`option` and `advice` are for errors: which setting is wrong, and what to do.

        `inherited` are functions, or methods of objects too large to be sent, that workers have by
        the fork. Other functions must be importable from a module, as for pickle.
        """
        alone = count == 1 or not can_fork() or multiprocessing.current_process().daemon
        self.count = 0 if alone else count
        self._option, self._advice, self._inherited = option, advice, list(inherited)
        self._processes: list[multiprocessing.process.BaseProcess] = []
        # by worker: the calls that it was sent
        self._calls: dict[Connection, deque[Call[Any]]] = {}
        self._waiting: deque[tuple[Call[Any], memoryview]] = deque()

    def __enter__(self) -> "WorkerPool":
        context: Any = multiprocessing.get_context("fork")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # workers inherit this
        try:
            for _ in range(self.count):
                pipe, other_end = context.Pipe()
                args = other_end, self._inherited, os.getpid()
                process = context.Process(target=_work, args=args, daemon=True)
                process.start()
                other_end.close()  # so that a killed worker ends the pipe
                self._processes.append(process)
                self._calls[pipe] = deque()
        except OSError as error:
            self.__exit__()
            raise self._error(f"the system starts no further process ({error.strerror})") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the workers, which hold nothing that could be lost."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._calls:
            pipe.close()
        self._processes, self._calls = [], {}
        self._waiting.clear()

    def submit(self, function: Callable[..., Result], /, *args: Any) -> Call[Result]:
        """Have a worker call the function; an error that cannot be sent is put into words."""
        call: Call[Result] = Call(self._receive)
        if not self.count:
            call.outcome = _call(function, args)
            return call
        inherited = function in self._inherited
        named: Any = self._inherited.index(function) if inherited else function
        self._waiting.append((call, ForkingPickler.dumps((named, args))))
        self._send()
        return call

    def _send(self) -> None:
        """Send calls to workers without one, and a small one to each that computes another."""
        while self._waiting and self._calls:
            pipe = min(self._calls, key=lambda pipe: len(self._calls[pipe]))
            call, message = self._waiting[0]
            if len(self._calls[pipe]) > (len(message) < SMALL):
                return
            self._waiting.popleft()
            self._calls[pipe].append(call)
            try:
                pipe.send_bytes(message)
            except OSError:
                self._lose(pipe)
        while self._waiting and not self._calls:  # all workers were killed
            self._waiting.popleft()[0].outcome = None, self._error(KILLED)

    def _receive(self, seconds: float | None) -> None:
        """Wait for results, at most so long; None: until there is one."""
        busy = [pipe for pipe, calls in self._calls.items() if calls]
        pipe: Any
        for pipe in wait(busy, seconds):
            try:
                outcome = pipe.recv()
            except (EOFError, OSError):
                self._lose(pipe)
            else:
                self._calls[pipe].popleft().outcome = outcome
        self._send()

    def _lose(self, pipe: Connection) -> None:
        for call in self._calls.pop(pipe):
            call.outcome = None, self._error(KILLED)
        pipe.close()

    def _error(self, reason: str) -> UserError:
        return UserError(f"{self._option}: {reason}; {self._advice}", Exit.NO_MEMORY)


def in_order(
    pool: WorkerPool, function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result]:
    """Yield function(task) for each task, in the order of the tasks, of which a few are ahead."""
    pending: deque[Call[Result]] = deque()
    for task in tasks:
        pending.append(pool.submit(function, task))
        if len(pending) >= max(1, AHEAD * pool.count):
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _work(pipe: Connection, inherited: Sequence[Callable[..., Any]], parent: int) -> None:
    """Make calls, with one thread, until the parent ends."""
    end_with_parent(signal.SIGKILL, parent)
    os.environ["OMP_NUM_THREADS"] = "1"
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    keep_memory()
    while True:
        function, args = pipe.recv()
        result, error = _call(inherited[function] if isinstance(function, int) else function, args)
        if error is not None:
            try:
                ForkingPickler.loads(ForkingPickler.dumps(error))
            except Exception:  # it cannot be sent
                error = RuntimeError("".join(traceback.format_exception_only(error)))
        pipe.send((result, error))


def _call(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Exception | None]:
    try:
        return function(*args), None
    except Exception as error:
        return None, error
