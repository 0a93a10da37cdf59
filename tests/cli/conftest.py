"""nmt-translate in this process."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt import modeldir
from nmt.checks import parity
from nmt.cli import translate
from nmt.config.settings import Settings
from nmt.modeldir import Trained
from tests.decode.copying import ENDLESS, trained

Run = Callable[..., tuple[int, bytes, str]]
LINES = [f"w{i % 40} w{i % 7}" for i in range(20)]
LINES[1] = LINES[13] = f"{ENDLESS} w1"  # cut at the limit, and counted


@pytest.fixture
def copying(settings_of: Callable[..., Settings]) -> Trained:
    """A model that copies."""
    return trained()._replace(settings=settings_of("decode.window=3"))


@pytest.fixture
def float32_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let --check decode in float32 alone: bfloat16 takes as long again."""
    monkeypatch.delitem(parity.BOUNDS, "bfloat16")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Words and stdin -> exit code, stdout, stderr."""

    def run(*words: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = translate.main(list(words))
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


@pytest.fixture
def nmt_translate(command: Run, monkeypatch: pytest.MonkeyPatch, copying: Trained) -> Run:
    """The command on a model that copies."""
    monkeypatch.setattr(modeldir, "load", lambda path, device: copying)
    return lambda *words, stdin=b"": command("model", *words, stdin=stdin)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of LINES."""
    path = tmp_path / "in"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path
