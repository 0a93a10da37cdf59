"""Sizes that no machine has: one line on stderr and the right exit code, whatever is too large."""

from tests.cli.conftest import Run


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
