"""Processes that compute for this one, each with one thread on a core of its own.

They are forked. So each has the model in the very memory in which it was read, in whatever form
(packed 8-bit matrices, too), and begins within hundredths of a second. After a fork no team of
OpenMP's threads may work that worked before it, and with one thread none does. What else a fork
could break are locks that another thread holds at that moment: `may_fork` tells.
"""

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from nmt.errors import Exit, UserError, is_want_of_memory
from nmt.machine.memory import keep_memory

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}  # for the process that forks, alone
PAUSE = 0.02  # seconds after which `attend` looks again

Functions = Mapping[str, Callable[..., Any]]


def can_fork() -> bool:
    """Whether this system forks safely: libraries of macOS begin threads of their own."""
    return sys.platform == "linux"


def may_fork() -> bool:
    """Whether nothing speaks against it here: no other thread of Python that could hold a lock."""
    return (
        can_fork()
        and threading.active_count() == 1
        and not multiprocessing.current_process().daemon  # these may have no processes
    )


class _Task:
    """A call of one of the functions, and later what it returned or raised."""

    def __init__(self, name: str, arguments: tuple[Any, ...], large: bool) -> None:
        self.name, self.arguments, self.large = name, arguments, large
        self.ended = False
        self.returned: Any = None
        self.error: Exception | None = None


class _Answer(NamedTuple):
    """What a process says of its task."""

    returned: Any
    error: Exception | None


class _Member:
    """A process and its end of a pipe."""

    def __init__(self, number: int, process: Any, pipe: Connection) -> None:
        self.number, self.process, self.pipe = number, process, pipe
        self.task: _Task | None = None


class WorkerPool:
    """Processes that call functions; they begin and end with a `with` block.

    A task goes to whoever is free first, in the order in which tasks were begun. An exception of a
    function is raised where its result is asked for; so is UserError (71, or 74) where its process
    was killed. Other tasks go on, so that all that was begun earlier still has its result.
    """

    def __init__(self, count: int, functions: Functions) -> None:
        self.count, self.functions = count, functions
        self._urgent: deque[_Task] = deque()
        self._waiting: deque[_Task] = deque()
        self._members: list[_Member] = []
        self._lost: UserError | None = None  # why there is nobody left
        self._looked = 0.0

    def __enter__(self) -> Self:
        try:
            with _undisturbed():
                for number in range(1, self.count + 1):
                    self._members.append(self._forked(number))
        except OSError as error:
            self._end()
            raise UserError(
                f"--workers {self.count}: the system begins no further process "
                f"({error.strerror}); give fewer",
                Exit.NO_MEMORY,
            ) from None
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def begin(
        self, name: str, *arguments: Any, large: bool = False, urgent: bool = False
    ) -> Callable[[], Any]:
        """Have a function called; what is returned here waits for its result, and gives it.

        Only one `large` call is made at a time, as it takes much memory. An `urgent` one is made
        before all that wait.
        """
        task = _Task(name, arguments, large)
        (self._urgent if urgent else self._waiting).append(task)
        self._deal()
        return partial(self._result, task)

    @property
    def waiting(self) -> int:
        """Tasks that nobody has begun."""
        return len(self._waiting)

    def attend(self) -> None:
        """Give whoever is free the next task; cheap enough to be called again and again."""
        if (self._urgent or self._waiting) and time.monotonic() - self._looked > PAUSE:
            self._listen(0)

    def _forked(self, number: int) -> _Member:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [*(member.pipe for member in self._members), ours]
        process = context.Process(
            target=_work, args=(number, theirs, inherited, self.functions), daemon=True
        )
        with warnings.catch_warnings():
            # Python sees numpy's and OpenMP's threads, none of which hold a lock while idle
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Member(number, process, ours)

    def _result(self, task: _Task) -> Any:
        while not task.ended:
            self._listen(None)
        if task.error is not None:
            raise task.error
        return task.returned

    def _listen(self, seconds: float | None) -> None:
        """Hear what the processes say, waiting so long (None: for the first) for it."""
        self._looked = time.monotonic()
        busy = {member.pipe: member for member in self._members if member.task is not None}
        for pipe in wait(list(busy), seconds):
            self._hear(busy[pipe])  # type: ignore[index]
        self._deal()

    def _hear(self, member: _Member) -> None:
        assert member.task is not None
        try:
            answer: _Answer = member.pipe.recv()
        except (EOFError, OSError):
            self._lose(member)
            return
        task, member.task = member.task, None
        task.returned, task.error, task.ended = answer.returned, answer.error, True

    def _lose(self, member: _Member) -> None:
        """Go on without a process that is gone."""
        member.pipe.close()
        member.process.join()
        self._members.remove(member)
        self._lost = _gone(member.number, self.count, member.process.exitcode)
        lost = [member.task] if member.task is not None else []
        for task in lost:
            task.error, task.ended = self._lost, True

    def _deal(self) -> None:
        """Send tasks to those that have none."""
        for member in [member for member in self._members if member.task is None]:
            if (task := self._next()) is None:
                break
            member.task = task
            try:
                member.pipe.send((task.name, task.arguments))
            except OSError:
                self._lose(member)
        while not self._members and (task := self._next()) is not None:
            task.error, task.ended = self._lost, True

    def _next(self) -> _Task | None:
        """Take the first task that may begin; None: there is none."""
        if self._urgent:
            return self._urgent.popleft()
        large = any(member.task is not None and member.task.large for member in self._members)
        for place, task in enumerate(self._waiting):
            if not (task.large and large):
                del self._waiting[place]
                return task
        return None

    def _end(self) -> None:
        """Stop all; they hold nothing that could be lost."""
        for member in self._members:
            member.process.kill()
        for member in self._members:
            member.process.join()
            member.pipe.close()
        self._members.clear()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back while processes are begun, which else could end by one with a trace."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gone(number: int, count: int, code: int | None) -> UserError:
    """What to say of a process that ended by itself."""
    if code == -signal.SIGKILL:
        return UserError(
            f"worker {number} of {count}: killed, as the system does for want of memory; give "
            "fewer --workers, or a smaller decode.batch_tokens",
            Exit.NO_MEMORY,
        )
    how = f"exit {code}"
    if code is not None and code < 0:
        how = f"killed by {signal.Signals(-code).name}"
    return UserError(
        f"worker {number} of {count}: ended without a word ({how}); --workers 1 does without it",
        Exit.IO,
    )


def _work(number: int, pipe: Connection, inherited: list[Connection], functions: Functions) -> None:
    """What a process does: calls functions, one after the other, for as long as it is asked."""
    for end in inherited:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
    for other in SIGNALS - {signal.SIGINT}:
        signal.signal(other, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    torch.set_num_threads(1)
    keep_memory()
    if number > 1:
        warnings.simplefilter("ignore")  # the first one says it
    tasks: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while True:
        name, arguments = tasks.get()
        try:
            answer = _Answer(functions[name](*arguments), None)
        except UserError as error:
            answer = _Answer(None, error)
        except Exception as error:
            answer = _Answer(None, _told(number, error))
        try:
            pipe.send(answer)
        except OSError:
            os._exit(Exit.PIPE)


def _told(number: int, error: Exception) -> Exception:
    """What to tell of an error that no user is to mend: not all kinds can travel."""
    if is_want_of_memory(error):
        return MemoryError(str(error))
    return RuntimeError(f"worker {number}: {''.join(traceback.format_exception(error))}")


def _receive(pipe: Connection, tasks: "queue.SimpleQueue[Any]") -> None:
    """Read tasks, and end with the parent: one that is killed cannot tell."""
    while True:
        try:
            tasks.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(Exit.PIPE)
