"""Running a command: its exit code, and one line where the user is to mend something."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nmt.cli import streams
from nmt.errors import BUG, Exit, UserError, exit_code, visible

_MEMORY_ADVICE = "lower trainer.batch_tokens or decode.batch_tokens, or raise the limit (ulimit -v)"


def run(command: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Run a command on its arguments and return its exit code; users see one line, never a trace.

    A UserError, an interrupt, an I/O error and a lack of memory are one line; any other exception
    is a bug, and shows its traceback.
    """
    argv = sys.argv[1:] if argv is None else argv
    streams.prepare_standard_streams()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s", force=True)
    logging.setLogRecordFactory(_log_record)
    try:
        _check_arguments(argv)
        command(argv)
        sys.stdout.flush()
    except UserError as error:
        return _report_error(str(error), error.code, error.details)
    except (Exception, KeyboardInterrupt) as error:
        if (code := exit_code(error)) == BUG:
            raise
        if code in (Exit.PIPE, Exit.IO):  # or Python, which flushes stdout at exit, complains again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == Exit.PIPE:
            return code
        path, reason = getattr(error, "filename", None), getattr(error, "strerror", None)
        messages = {
            Exit.INTERRUPTED: "interrupted",
            Exit.NO_MEMORY: f"out of memory; {_MEMORY_ADVICE}",
            Exit.NO_INPUT: f"{path}: {reason}; give another path",
            Exit.IO: f"{path or 'output'}: {reason}",
        }
        return _report_error(messages[Exit(code)], code)
    return Exit.OK


def _check_arguments(argv: list[str]) -> None:
    """Refuse to work without stdout, and arguments that no config or file could hold."""
    if sys.stdout is None:
        raise UserError("stdout is closed; send it somewhere, as in > FILE", Exit.IO)
    for argument in argv:
        if argument.encode(errors="replace").decode() != argument:
            advice = "give another name, and a locale such as LC_ALL=C.UTF-8"
            raise UserError(f"{argument}: not UTF-8; {advice}")


def _log_record(*args: Any, **settings: Any) -> logging.LogRecord:
    """A log record whose arguments cannot add lines or move the cursor: they come from files."""
    record = logging.LogRecord(*args, **settings)
    if record.name.split(".")[0] == "nmt" and isinstance(record.args, tuple):
        record.args = tuple(a if isinstance(a, int | float) else visible(a) for a in record.args)
    return record


@contextmanager
def pause_gc() -> Iterator[None]:
    """Import large libraries here: what they make stays, and garbage collection may pass it over.

    Python would look through it again and again while torch is imported, and once more at the end
    of the process; that is a third of the time that both take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _report_error(message: str, code: int, details: Sequence[str] = ()) -> int:
    """Write a message and its details, one line each, even if a file's text is part of them."""
    lines = [f"nmt: {visible(message)}", *(f"  {visible(detail)}" for detail in details)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return code
