"""Errors of the system are one line and an exit code; what is imported stays uncollected."""

import errno
import os
from collections.abc import Callable

import pytest
import torch

from nmt.cli import command
from nmt.errors import Exit, UserError

ADVICE = "lower trainer.batch_tokens or decode.batch_tokens, or raise the limit (ulimit -v)"


def tried(size: int) -> None:
    torch.empty(size)


SHORTAGES: dict[str, Callable[[], None]] = {
    "torch, host": lambda: tried(2**50),
    "torch, device": lambda: _raise(torch.OutOfMemoryError("CUDA out of memory. Tried to ...")),
    "driver": lambda: _raise(RuntimeError("CUDA error: out of memory")),
    "python": lambda: _raise(MemoryError()),
    "C++": lambda: _raise(RuntimeError("std::bad_alloc")),
    "fork": lambda: _raise(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))),
    "threads": lambda: _raise(RuntimeError("can't start new thread")),
    "loader": lambda: _raise(ImportError("libtorch_cpu.so: failed to map segment from shared ...")),
}


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("shortage", SHORTAGES)
def test_a_shortage_of_memory_is_one_line(
    shortage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(lambda _: SHORTAGES[shortage](), []) == 71
    assert capsys.readouterr().err == f"nmt: out of memory; {ADVICE}\n"


def test_a_place_that_may_not_be_searched_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "closed/x")
    assert command.run(lambda _: _raise(error), []) == 66
    assert capsys.readouterr().err == "nmt: closed/x: Permission denied; give another path\n"


def test_details_are_lines_and_text_of_others_adds_none(capsys: pytest.CaptureFixture[str]) -> None:
    error = UserError("a\nb: wrong", Exit.UNAVAILABLE, ["one", "two\n\x1b[2J"])
    assert command.run(lambda _: _raise(error), []) == 69
    assert capsys.readouterr().err == "nmt: a\\x0ab: wrong\n  one\n  two\\x0a\\x1b[2J\n"


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ImportError("no such module")])
def test_other_errors_are_bugs_and_show_all(error: Exception) -> None:
    with pytest.raises(type(error)):
        command.run(lambda _: _raise(error), [])
