"""The one error that a user sees, and the exit codes that scripts rely on."""

import errno
import re
import signal
import traceback
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

# characters that move the cursor, clear the screen, end a line or change the writing direction
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Exit(IntEnum):
    """Exit codes of every command, after sysexits.h where it has a word for it."""

    OK = 0
    USAGE = 2  # the command line or a config is wrong
    DATA = 65  # a file's content or hash is wrong
    NO_INPUT = 66  # an input file is missing
    UNAVAILABLE = 69  # a download, a library or a GPU cannot be had
    DIVERGED = 70  # training produced no finite numbers
    NO_MEMORY = 71  # the memory of host or device is too small
    CANT_CREATE = 73  # the output directory cannot be written, or is in use
    IO = 74  # reading or writing failed midway
    OUT_OF_TIME = 75  # trainer.max_hours are over, after saving
    INTERRUPTED = 130  # Ctrl-C, after saving
    USER_SIGNAL = 128 + signal.SIGUSR1  # 138 on Linux: SIGUSR1, after saving
    PIPE = 141  # the reader of the output went away
    TERMINATED = 143  # SIGTERM, after saving


DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)  # a full or failing disk
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
# errors of a path that a user names; code that writes refuses it by its key, with exit 73
PATH_ERRORS = (*NO_ACCESS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
BUG = 1  # as Python leaves


class UserError(Exception):
    """Says *where: what is wrong; what to do* in one line, shown without a trace.

    `details` are further lines, where several things are wrong at once.
    """

    def __init__(self, message: str, code: Exit = Exit.USAGE, details: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.details = tuple(details)


class RefusedLinesError(UserError):
    """Some lines were refused and left empty; raised after the last line, when all are done."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error; BUG for an error of nmt."""
    if isinstance(error, UserError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return Exit.PIPE
    if is_out_of_memory(error):
        return Exit.NO_MEMORY
    if isinstance(error, OSError) and error.errno in PATH_ERRORS and error.filename:
        return Exit.NO_INPUT
    return Exit.IO if isinstance(error, OSError) and error.errno in (*DISK, errno.EBADF) else BUG


PLUGIN_ERRORS = (Exception, SystemExit)  # of code that users give, which may call sys.exit


def where_raised(error: BaseException) -> str:
    """Type, file and line, and the first line of the message of an unexpected exception."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [f for f in trace if "torch" not in Path(f.filename).parts] or trace
    location = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return f"{type(error).__name__} at {location}: {str(error).strip().split(chr(10))[0]}"


OUT_OF_MEMORY = (  # in messages of torch, the dynamic loader and threads, which raise other types
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Cannot allocate memory",
    "DefaultCPUAllocator",
    "Overflow when unpacking long",
    "Storage size calculation overflowed",
    "bad_alloc",
    "can't start new thread",
    "failed to map segment",
    "out of memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that the memory of the host or a device was too small."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if not isinstance(error, (RuntimeError, ImportError, OSError)):
        return False
    return any(sign in str(error) for sign in OUT_OF_MEMORY)


def visible(text: object, limit: int | None = None) -> str:
    """Foreign text on one line, for a terminal or a log: control characters become \\xNN.

    Text longer than `limit` is cut. So no file can move the cursor or forge a line of output.
    """
    shown = _UNSEEN.sub(lambda m: _escaped(ord(m[0])), str(text))
    return shown if limit is None or len(shown) <= limit else f"{shown[:limit]}..."


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # Python's stand-in for a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
