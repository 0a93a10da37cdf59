"""nmt-encodings: the list, the checks, and what is refused."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from torch import Tensor

from nmt import modeldir
from nmt.checks.parity import CONDITIONS
from nmt.checks.run import OF_TRAINED
from nmt.cli.encodings import main
from nmt.config.catalog import FAMILIES, options_of
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]


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
        (["relative", "--check", "model.heads=5"], "model.heads=5: must divide model.dim=32"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"nmt: {message}") and err.count("\n") == 1


def off_by_one(
    self: Index, index: Tensor, context: Context, right: Callable[..., Tensor] = Index.assign
) -> Tensor:
    """Positions that decoding with a cache counts wrongly."""
    return right(self, index, context) + (context.state is not None)


@pytest.mark.usefixtures("float32_only")
def test_a_trained_model_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny: Make
) -> None:
    none, model = cast(Any, None), tiny("encoding=absolute", vocab=20)
    trained = modeldir.Trained(none, model, none, none, {})
    monkeypatch.setattr(modeldir, "load", lambda path: trained)
    assert main(["--run", "runs/x"]) == 0
    heading, *lines = capsys.readouterr().out.rstrip().split("\n")
    assert heading == "runs/x" and len(lines) == len(OF_TRAINED) + len(CONDITIONS)
    monkeypatch.setattr(Index, "assign", off_by_one)
    assert main(["--check", "--run", "runs/x"]) == 70
