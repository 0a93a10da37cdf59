"""nmt-encodings: the list, and what is refused."""

import subprocess
import sys

import pytest

from nmt.cli.encodings import main
from nmt.overrides.options import FAMILIES, options_of


def test_lists_every_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.split("\n")
    options = [line for line in lines if line.startswith("  ")]
    assert sorted(line.split()[0] for line in options) == options_of("encoding")
    assert all(len(line.split()) > 3 for line in options)
    assert [line for line in lines if line and line not in options] == [
        family for family in FAMILIES if family in lines
    ]


def test_the_list_needs_no_torch() -> None:
    code = (
        "import sys; from nmt.cli.encodings import main; main([]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_counts_at_the_chosen_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=base", "--no-timing"]) == 0
    shown = capsys.readouterr().out
    assert "50,688 in a model of 512 x 6+6 layers" in shown and "\n  time" not in shown


def test_the_time_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=tiny", "model.dim=32"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # wherever the lines break
    assert "interleaved pairs" in shown and "kept for the backward pass" in shown


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["relativ"], "relativ: no such encoding; did you mean relative?"),
        (["tau=8"], "tau=8: of which encoding? nmt-encodings NAME KEY=VALUE"),
        (["relative", "rotary"], "rotary: expected KEY=VALUE after relative"),
        (["--markdown"], "--markdown: only the --table has a form for it"),
        (["--run", "x"], "--run: draws what a run has learned; give --plot FILE, too"),
        (["relative", "--table"], "relative: --table takes KEY=VALUE, not a name"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"nmt: {message}\n"
