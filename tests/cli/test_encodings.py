"""nmt-encodings: the list, the checks, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt import modeldir
from nmt.checks.parity import CONDITIONS
from nmt.checks.run import OF_TRAINED
from nmt.cli.encodings import main
from nmt.config.catalog import FAMILIES, options_of
from nmt.modeldir import Trained
from tests.plug_ins import install


def test_lists_every_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.split("\n")
    options = [line for line in lines if line.startswith("  ")]
    assert sorted(line.split()[0] for line in options) == options_of("encoding")
    assert all(len(line.split()) > 3 for line in options)
    assert [line for line in lines if line and line not in options] == [
        family for family in FAMILIES if family in lines
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["relativ"], "encoding=relativ: no such option; did you mean relative?"),
        (["--run", "x", "tau=2"], "tau=2: --run checks a trained model as it is"),
        (["[relative,absolut]", "--check"], "encoding=absolut: no such option; did you mean abs"),
        (["relative", "encoding=lstm"], "encoding=lstm: name it alone: NAME"),
        (["relative", "--check", "tau=x"], "encoding.relative.tau=x"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"nmt: {message}") and err.count("\n") == 1


OFF_BY_ONE = """
from dataclasses import dataclass
from nmt.encodings.positions import Index
@dataclass(frozen=True)
class OffByOne(Index):
    def assign(self, index, context):
        return super().assign(index, context) + (context.state is not None)
"""


@pytest.mark.usefixtures("float32_only")
def test_a_trained_model_is_checked(
    of_letters: Callable[..., Trained],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Also one with positions that decoding with a cache counts wrongly."""
    install(tmp_path, "one", "off_by_one", "off_by_one:OffByOne", OFF_BY_ONE, "nmt.positions")
    monkeypatch.syspath_prepend(tmp_path)
    for at in ("index", "off_by_one"):
        trained = of_letters("encoding=absolute", f"encoding.absolute.at={at}")
        modeldir.save(trained, tmp_path / at)
    assert main(["--run", str(tmp_path / "index")]) == 0
    heading, *lines = capsys.readouterr().out.rstrip().split("\n")
    assert heading == str(tmp_path / "index") and len(lines) == len(OF_TRAINED) + len(CONDITIONS)
    assert main(["--check", "--run", str(tmp_path / "off_by_one")]) == 70
