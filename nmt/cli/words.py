"""What all commands share: exit codes and one-line errors."""

import gc
import logging
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nmt.errors import DISK, Exit, UserError, is_want_of_memory

ADDRESSES = 2**30  # bytes that the libraries take alone; OpenBLAS ends a process that has too few
_MEMORY_ADVICE = "lower trainer.batch_tokens or decode.batch_tokens, or raise the limit (ulimit -v)"


def run(command: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Run a command on its words and return its exit code; users see one line, never a trace.

    Anything but a UserError (or what the system does to us) is our bug, and shows all.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s", force=True)
    try:
        _check_addresses()
        command(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except UserError as e:
        return _say(str(e), e.code)
    except KeyboardInterrupt:
        return _say("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        return Exit.PIPE
    except Exception as e:
        if is_want_of_memory(e):
            return _say(f"out of memory; {_MEMORY_ADVICE}", Exit.NO_MEMORY)
        if not isinstance(e, OSError) or e.errno not in DISK:
            raise
        _drop_output()
        return _say(f"{e.filename or 'output'}: {e.strerror}", Exit.IO)
    return Exit.OK


def _check_addresses() -> None:
    """Refuse a limit on memory under which no library can be loaded."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < ADDRESSES:
        raise UserError(
            f"ulimit -v: leaves {soft / 2**30:.1f} GB; the libraries alone need "
            f"{ADDRESSES / 2**30:.1f} GB",
            Exit.NO_MEMORY,
        )


@contextmanager
def lasting() -> Iterator[None]:
    """Import large libraries here: what they make stays, and need not be looked through as rubbish.

    Python would do so again and again while torch is imported, and once more at the end of the
    process; that is a third of the time that both take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _drop_output() -> None:
    """Let Python flush stdout into nothing when it exits, instead of complaining once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: Exit) -> int:
    sys.stderr.write(f"nmt: {message}\n")
    return code
