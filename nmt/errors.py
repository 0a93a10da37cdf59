"""The one error that a user sees, and the exit codes that scripts rely on."""

import errno
import signal
import traceback
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of every command, after sysexits.h where it has a word for it."""

    OK = 0
    USAGE = 2  # the command line or a config is wrong
    DATA = 65  # a file's content or hash is wrong
    NO_INPUT = 66  # an input file is missing
    UNAVAILABLE = 69  # a download cannot be had
    DIVERGED = 70  # training produced no finite numbers
    NO_MEMORY = 71  # the memory of host or device is too small
    CANT_CREATE = 73  # the output directory cannot be written, or is in use
    IO = 74  # reading or writing failed midway
    INTERRUPTED = 130  # Ctrl-C, after saving
    USER_SIGNAL = 128 + signal.SIGUSR1  # 138 on Linux: SIGUSR1, after saving
    PIPE = 141  # the reader of the output went away
    TERMINATED = 143  # SIGTERM, after saving


DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)  # what a disk does to us


class UserError(Exception):
    """Says *where: what is wrong; what to do* in one line, shown without a trace."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends by this error; 1 is a bug of ours."""
    if isinstance(error, UserError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return Exit.PIPE
    if is_want_of_memory(error):
        return Exit.NO_MEMORY
    return Exit.IO if isinstance(error, OSError) and error.errno in DISK else 1


def whence(error: Exception) -> str:
    """Say the kind of an exception that is not ours, where it was raised, and its first line."""
    trace = traceback.extract_tb(error.__traceback__)
    own = [f for f in trace if "torch" not in Path(f.filename).parts] or trace
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{type(error).__name__} at {place}: {str(error).strip().split(chr(10))[0]}"


WANT_OF_MEMORY = (
    *("DefaultCPUAllocator", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "bad_alloc"),
    *("Cannot allocate memory", "failed to map segment", "can't start new thread"),
    *("Storage size calculation overflowed", "Overflow when unpacking long"),
)  # in errors of torch, of the loader of libraries, and of threads, which have no type for it


def is_want_of_memory(error: BaseException) -> bool:
    """Tell whether the memory of host or device was too small for what was tried."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if not isinstance(error, (RuntimeError, ImportError, OSError)):
        return False
    return any(sign in str(error) for sign in WANT_OF_MEMORY)
