"""nmt-encodings: the list, the checks, and what is refused."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt import modeldir
from nmt.checks import parity, run
from nmt.checks.parity import BOUNDS, CONDITIONS, Deviation
from nmt.checks.properties import CHECKS
from nmt.checks.run import OF_TRAINED
from nmt.cli.encodings import exportable, main
from nmt.config.catalog import FAMILIES, options_of
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.model.transformer import Transformer
from tests.composing import settings_of

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


def test_counts_at_the_chosen_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=base"]) == 0
    assert "50,688 in a model of 512 x 6+6 layers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("relative", "nmt-export --to ctranslate2 writes it"),
        ("rotary", "nmt-export --to ctranslate2 writes it"),
        ("relative_absolute", "no: encoding."),
        ("lstm", "no: encoding.lstm: cannot be exported"),
    ],
)
def test_the_card_says_what_the_export_would(option: str, said: str) -> None:
    assert exportable(settings_of(f"encoding={option}")).startswith(said)


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


@pytest.mark.slow
def test_one_encoding_is_checked_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "--check", "tau=2"]) == 0
    printed = capsys.readouterr()
    heading, *lines = printed.out.rstrip().split("\n")
    assert heading == "relative" and printed.err == ""
    checks = [*CHECKS, *(f"decoding: {c.name}, {p}" for p in BOUNDS for c in CONDITIONS)]
    assert [line[2:42].rstrip() for line in lines] == checks
    assert all(line[42:45] == "ok " for line in lines)


def off_by_one(
    self: Index, index: Tensor, context: Context, right: Callable[..., Tensor] = Index.assign
) -> Tensor:
    """Positions that decoding with a cache counts wrongly."""
    return right(self, index, context) + (context.state is not None)


@pytest.mark.slow
@pytest.mark.usefixtures("float32_only")
def test_failures_are_named_and_leave_with_70(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "assign", off_by_one)
    assert main(["absolute", "relative", "--check"]) == 70
    printed = capsys.readouterr()
    assert printed.err == "nmt: checks that failed: 6; see above\n"
    rows = [line.split() for line in printed.out.split("\n") if line and line[0] != " "]
    assert rows == [
        ["absolute", "12", "checks", "passed,", "6", "failed"],
        ["relative", "18", "checks", "passed,", "0", "failed"],
    ]
    told = " ".join(printed.out.split())
    assert "decoding: token by token, float32: largest difference" in told
    assert "look at: positions while one token is decoded" in told
    assert all(len(line) <= 110 for line in printed.out.split("\n"))
    assert main(["absolute", "--check"]) == 70
    assert "  decoding: beams, float32                FAILED  largest" in capsys.readouterr().out


@pytest.mark.usefixtures("float32_only")
@pytest.mark.slow
def test_all_are_checked_but_those_that_the_overrides_do_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "options_of", lambda *group: ["absolute", "relative"])
    assert main(["--check", "tau=3"]) == 0
    relative, absolute = capsys.readouterr().out.rstrip().split("\n")
    refused = "refused: tau: no such key with this encoding; these have it: "
    assert absolute.split(maxsplit=1)[1].startswith(refused)
    assert relative.endswith("18 checks passed, 0 failed")
    assert main(["absolute", "relative", "--check", "tau=3"]) == 70
    assert capsys.readouterr().err == "nmt: checks that failed: 1; see above\n"
    assert main(["absolute", "--check", "tau=3"]) == 2
    capsys.readouterr()
    assert main(["--check", "model.dimm=3"]) == 2
    message = "nmt: model.dimm: no such key; did you mean model.dim?\n"
    assert capsys.readouterr() == ("", message)


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


def test_decoding_is_checked_on_the_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["absolute", "--check", "--device", "cuda:7"]) == 69
    assert "device=cuda:7: torch finds no such GPU here" in capsys.readouterr().err
    devices: list[torch.device] = []

    def noted(model: Transformer, *rest: object) -> list[Deviation]:
        devices.append(model.output.weight.device)
        return []

    monkeypatch.setattr(parity, "measure", noted)
    monkeypatch.setattr("nmt.system.device.pick", lambda name: torch.device("meta"))
    assert main(["absolute", "--check", "--device", "auto"]) == 0
    assert devices == [torch.device("meta")]
