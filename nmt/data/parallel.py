"""The same function on many tasks, in several processes, with results in the order of tasks."""

import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any, Generic, TypeVar

from nmt.errors import Exit, UserError
from nmt.machine.cpus import cpus, threads

Task = TypeVar("Task")
Result = TypeVar("Result")
AHEAD = 2  # tasks per process that wait or whose results wait: this bounds the memory
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}  # for the parent alone
CHILD = (  # its standard input is a socket to the parent, its output the parent's log
    "import os, sys; from multiprocessing.connection import Connection; "
    "parent = Connection(os.dup(0)); sys.path[:] = parent.recv(); "
    "from nmt.data.parallel import serve; serve(parent)"
)


def cores() -> int:
    """How many processes of one thread run at full speed.

    That OMP_NUM_THREADS is 1 under torchrun is its own doing, for ranks that share a machine.
    """
    return cpus() if "TORCHELASTIC_RUN_ID" in os.environ else threads()


class Job(Generic[Result]):
    """A call of a function, in this process or another one."""

    def __init__(self, call: Callable[[], Result], process: "_Process | None" = None) -> None:
        """`call`: makes it here; a `process` has been sent it instead."""
        self._call, self._process = call, process
        self.outcome: tuple[Any, BaseException | None] | None = None

    def result(self) -> Result:
        """Wait for the result, or raise what the call raised; UserError (71): process killed."""
        if self._process is None:
            return self._call()
        while self.outcome is None:
            self._process.receive()
        result, error = self.outcome
        if error is not None:
            raise error
        return result


class Pool:
    """Processes that start with the first task and serve until `with` ends; one: this process.

    They are new interpreters that import what a task needs and nothing else. A fork would inherit
    the locks of torch's and tokenizers' threads; and what multiprocessing spawns runs the parent's
    script again, which prepares text and waits for the lock that its parent holds.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._processes: list[_Process] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.end()
        self._processes.clear()

    def submit(self, function: Callable[[Task], Result], task: Task) -> Job[Result]:
        """Send a task to the process that has the fewest; one process: this one does it later.

        The function must be one of a module. UserError (71) if the process was killed.
        """
        if self._workers == 1:
            return Job(lambda: function(task))
        if not self._processes:
            self._processes += [_Process(self._workers) for _ in range(self._workers)]
        ready = wait([process.connection for process in self._processes], timeout=0)
        for process in self._processes:
            if process.connection in ready and process.jobs:
                process.receive()
        return min(self._processes, key=lambda process: len(process.jobs)).send(function, task)

    def in_order(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Result]:
        """Yield function(task) for each task.

        The first task that raises, in the order of tasks, raises here. UserError (71) if a
        process is killed.
        """
        if self._workers == 1:
            yield from map(function, tasks)
            return
        waiting: deque[Job[Result]] = deque()
        for task in tasks:
            waiting.append(self.submit(function, task))
            if len(waiting) >= AHEAD * self._workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Process:
    """One process, and the jobs that it was sent and has not answered."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.jobs: deque[Job[Any]] = deque()
        self.connection, far = Pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # a child inherits this
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                stdin=far.fileno(),
                stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            far.close()
        self._deliver(sys.path)

    def send(self, function: Callable[[Task], Result], task: Task) -> Job[Result]:
        """Have it call a function; it reads at once, so this never waits for another task."""
        job: Job[Result] = Job(lambda: function(task), self)
        self._deliver((function, task))
        self.jobs.append(job)
        return job

    def receive(self) -> None:
        """Take its next answer, of its oldest job."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._killed() from None
        self.jobs.popleft().outcome = answer

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def _deliver(self, message: object) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise self._killed() from None

    def _killed(self) -> UserError:
        return UserError(
            "data.workers: a process that prepares text was killed, perhaps for want of "
            f"memory; set data.workers below {self._workers}",
            Exit.NO_MEMORY,
        )


def in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result]:
    """Yield function(task) for each task, from a pool for these tasks alone."""
    with Pool(workers) as pool:
        yield from pool.in_order(function, tasks)


def serve(parent: Connection) -> None:
    """Call the functions that the parent sends, in order, and end with it."""
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    answers: queue.SimpleQueue[memoryview[int]] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                tasks.put(parent.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone: it needs no answer

    def write() -> None:
        try:
            while True:
                parent.send_bytes(answers.get())
        except OSError:
            os._exit(1)

    for work in (read, write):
        threading.Thread(target=work, daemon=True).start()
    while True:
        answers.put(_answer(tasks.get()))


def _answer(message: bytes) -> "memoryview[int]":
    """Make a call; give what it returned or raised."""
    try:
        function, task = ForkingPickler.loads(message)
        return ForkingPickler.dumps((function(task), None))
    except BaseException as error:
        if not isinstance(error, UserError):
            error.add_note(f"in another process:\n{traceback.format_exc()}")
        try:
            answer = ForkingPickler.dumps((None, error))
            ForkingPickler.loads(answer)
        except Exception:
            words = "".join(traceback.format_exception_only(error))
            answer = ForkingPickler.dumps((None, RuntimeError(words)))
        return answer
