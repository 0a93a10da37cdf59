"""Sizes that no machine has: one line on stderr and the right exit code, whatever is too large."""

from pathlib import Path

import pytest

from nmt.cli import train
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "code", "key"),
    [
        (["model.dim=100000000"], 71, "model.dim=100000000: weights, gradients and Adam's"),
        (["encoding=relative", "tau=1000000000"], 71, "encoding.relative.tau=1000000000: weights"),
        (
            ["model.encoder_layers=1000000"],
            2,
            "model.encoder_layers=1000000: must be from 1",
        ),
        (["encoding=relative", "tau=1" + "0" * 30], 2, "encoding.relative.tau=1000000000000"),
    ],
)
def test_training(
    words: list[str], code: int, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([*words, f"runs={tmp_path}/runs", f"data.cache={tmp_path}/cache"]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"nmt: {key}")
    assert not list(tmp_path.iterdir())


def test_translating_a_line_of_a_megabyte(nmt_translate: Run) -> None:
    lines = b"w1\n" + b"w2 " * 350_000 + b"\nw3\n"
    code, out, err = nmt_translate("decode.too_long=refuse", stdin=lines)
    assert (code, out) == (65, b"w1\n\nw3\n")
    assert err.count("\n") == 1
    assert "1 (first: line 2; longest: 350000 pieces)" in err


def test_or_its_parts(nmt_translate: Run) -> None:
    line = b" ".join([b"w2"] * 12_000)
    code, out, err = nmt_translate(stdin=b"w1\n" + line + b"\nw3\n")
    assert (code, out) == (0, b"w1\n" + line + b"\nw3\n")
    assert err.count("\n") == 1
    assert "translated in parts: 1 (first: line 2; longest: 12000 pieces)" in err
