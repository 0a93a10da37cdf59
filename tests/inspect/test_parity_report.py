"""nmt-parity: the matrix, its exit codes and what it refuses."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.cli.parity import main
from nmt.encodings.composition import HOOKS, hooks_of
from nmt.encodings.context import Context
from nmt.encodings.lookup import find
from nmt.encodings.positions import Index
from nmt.inspect import parity_report
from nmt.inspect.parity import CONDITIONS, TOKENS, measure
from nmt.overrides.options import options_of

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
FEW = "--tokens=8"


def off_by_one(self: Index, index: Tensor, context: Context) -> Tensor:
    return index + (context.state is not None and context.site == "decoder")


def test_the_matrix(capsys: Capture) -> None:
    assert main(["encoding=relative,[absolute,relative]", "tau=4", FEW]) == 0
    printed = capsys.readouterr()
    lines = printed.out.split("\n")
    assert printed.err == ""
    assert all(len(line) <= 120 for line in lines)
    head = next(line for line in lines if line.startswith("encoding "))
    assert head.split() == ["encoding", *[c.name for c in CONDITIONS] * 2, "worst"]
    rows = [line.split() for line in lines if line.startswith(("relative ", "[absolute,"))]
    assert [row[0] for row in rows] == ["relative", "[absolute,relative]"]
    for row in rows:
        assert all(0 < float(cell) < 2e-5 for cell in row[1:7])
        assert all(float(cell) < 0.5 for cell in row[7:13])
        assert row[13].endswith("%") and row[14] in ("f32", "bf16")
        assert row[15] in {c.name for c in CONDITIONS}
    assert "encodings 2, refused 0, cells 24, failed 0" in lines


def test_overrides_of_the_model(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "new" / "parity.json"
    overrides = ["model.share_layers=true", "model.halting=true", "model.dim=16", "seed=5"]
    assert main(["encoding=absolute", *overrides, FEW, "--json", str(file)]) == 0
    assert set(overrides) <= set(json.loads(file.read_text())["overrides"])
    assert "model.dim=32" not in json.loads(file.read_text())["overrides"]


def test_model_option_keeps_its_sizes(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "parity.json"
    assert main(["encoding=none", "model=tiny", FEW, "--json", str(file)]) == 0
    assert json.loads(file.read_text())["overrides"] == ["model=tiny"]


def test_a_mistake_is_named_and_leaves_with_70(
    capsys: Capture, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Index, "assign", off_by_one)
    file = tmp_path / "parity.json"
    assert main(["encoding=absolute,relative", FEW, "--json", str(file)]) == 70
    printed = capsys.readouterr()
    assert printed.err == (
        "nmt: cells where decoding with a cache is not the full pass: 12; see the table\n"
    )
    matrix, _, ending = printed.out.partition("\nencodings 2, refused 0, cells 24, failed 12\n")
    rows = [line for line in matrix.split("\n") if line.startswith(("absolute ", "relative "))]
    assert [row.count("!") for row in rows] == [12, 0]
    assert rows[0].split()[13] == "FAIL" and len(rows) == 2  # the matrix is whole
    assert ending.startswith("\nabsolute:\n  float32   fresh ")
    assert "look at: positions while one token is decoded" in ending
    assert "relative" not in ending
    assert all(len(line) <= 120 for line in printed.out.split("\n"))
    document = json.loads(file.read_text())
    assert document["passed"] is False
    assert [e["passed"] for e in document["encodings"]] == [False, True]


def test_the_document(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "parity.json"
    assert main(["encoding=relative", FEW, "seed=2", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert set(document["versions"]) == {"nmt", "python", "torch"}
    assert document["tokens"] == 8 and "seed=2" in document["overrides"]
    assert document["bounds_of_largest_logit"] == {"float32": 2**-18, "bfloat16": 1 / 16}
    assert list(document["conditions"]) == [c.name for c in CONDITIONS]
    (row,) = document["encodings"]
    assert (row["encoding"], row["refused"], row["passed"]) == ("relative", None, True)
    assert len(row["cells"]) == 12
    for cell in row["cells"]:
        assert cell["difference"] <= cell["bound"] and cell["passed"] and cell["error"] is None
        share = 2**-18 if cell["precision"] == "float32" else 1 / 16
        assert cell["bound"] == share * cell["largest_logit"]


def test_what_is_not_finite_or_raises(capsys: Capture, tmp_path: Path, monkeypatch: Patch) -> None:
    def broken(self: Index, index: Tensor, context: Context) -> Tensor:
        if context.state is not None and index.shape[1] > 1:
            raise KeyError("nothing here")
        return index * float("nan") if context.site == "encoder" else index

    monkeypatch.setattr(Index, "assign", broken)
    file = tmp_path / "parity.json"
    assert main(["encoding=absolute", FEW, "--json", str(file)]) == 70
    printed = capsys.readouterr().out
    assert (
        "error!" in printed
        and "KeyError at test_parity_report.py:" in printed
        and "nothing here" in printed
    )
    cells = json.loads(file.read_text())["encodings"][0]["cells"]
    assert all(cell["difference"] is None and not cell["passed"] for cell in cells)


def test_a_wrong_encoding_is_named_with_the_nearest(capsys: Capture) -> None:
    for override, message in {
        "encoding=relativ": "encoding=relativ: no such option; did you mean relative?",
        "encoding=[relative,absolut]": "encoding=absolut: no such option; did you mean absolute?",
        "encoding=alll": "encoding=alll: no such option",
    }.items():
        assert main([override]) == 2
        out, err = capsys.readouterr()
        assert err.startswith(f"nmt: {message}") and out == ""


def test_overrides_without_effect_are_refused(capsys: Capture) -> None:
    for override in ("trainer.device=cpu", "data=toy", "optim.lr=1", "decode.alpha=1", "name=x"):
        assert main(["encoding=none", override]) == 2
        printed = capsys.readouterr().err
        assert printed == f"nmt: {override}: changes nothing here; give model, encoding or seed\n"
    assert main(["relative"]) == 2
    assert capsys.readouterr().err == "nmt: relative: expected key=value; see --help\n"


def test_what_was_asked_for_by_name_must_be_possible(capsys: Capture) -> None:
    assert main(["encoding=relative", "model.heads=5"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "nmt: model.heads=5: must divide model.dim=32\n" and printed.out == ""


def test_an_override_that_fits_none_is_an_error(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr(parity_report, "options_of", lambda *group: ["absolute", "relative"])
    assert main(["model.dimm=3"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "nmt: model.dimm=3: no key 'model.dimm'; did you mean model.dim?\n"
    assert printed.out == ""


def test_all_are_all_and_those_that_the_overrides_do_not_fit_are_refused(
    capsys: Capture, monkeypatch: Patch
) -> None:
    seen: list[str] = []

    def measured(
        name: str, overrides: list[str], tokens: int, lenient: bool, device: torch.device
    ) -> parity_report.Proof:
        assert tokens == TOKENS and lenient
        seen.append(name)
        return parity_report.Proof(name, refused="why not")

    with monkeypatch.context() as patch:
        patch.setattr(parity_report, "measured", measured)
        assert main([]) == 2
        assert seen == options_of("encoding")
    monkeypatch.setattr(parity_report, "options_of", lambda *group: ["absolute", "relative"])
    capsys.readouterr()
    assert main(["tau=3", FEW]) == 0
    out = capsys.readouterr().out
    assert "\nabsolute              refused: tau=3: the chosen encoding has no tau" in out
    assert "\nencodings 1, refused 1, cells 12, failed 0\n" in out
    assert all(len(line) <= 120 for line in out.split("\n"))


def test_pairs_and_their_refusal(capsys: Capture, tmp_path: Path, monkeypatch: Patch) -> None:
    def refuse(entries: object, *rest: object) -> list[object]:
        raise ValueError("the two do not go together")

    file = tmp_path / "parity.json"
    assert main(["encoding=absolute,relative,alibi", "--pairs", FEW, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["encodings"]
    assert [r["encoding"] for r in rows] == [
        "[absolute,relative]",
        "[absolute,alibi]",
        "[relative,alibi]",
    ]
    assert all(r["passed"] for r in rows)
    capsys.readouterr()

    def picky(settings, tokens, device):  # type: ignore[no-untyped-def]
        if "alibi" in settings.encoding:
            monkeypatch.setattr("nmt.build.create", refuse)
        return measure(settings, tokens)

    monkeypatch.setattr("nmt.inspect.parity.measure", picky)
    assert main(["encoding=absolute,relative,alibi", "--pairs", FEW, "--json", str(file)]) == 0
    assert "refused: model: the two do not go together" in capsys.readouterr().out
    refused = json.loads(file.read_text())["encodings"][1]
    assert refused["refused"] == "model: the two do not go together"
    assert refused["passed"] is None and refused["cells"] == []
    assert main(["encoding=absolute", "--pairs"]) == 2


def test_pairs_of_all_take_one_of_each_kind() -> None:
    chosen = parity_report.representatives()
    assert {"absolute", "relative"} <= set(chosen) <= set(options_of("encoding"))
    assert not {"none", "relative_absolute", "relative_key"} & set(chosen)
    kinds = [(*hooks_of(find(name)), find(name).takes) for name in chosen]
    assert len(set(kinds)) == len(kinds) > 4
    answered = {hook for hook in HOOKS for kind in kinds if hook in kind}
    assert answered >= {"embed", "project", "scores", "bias", "values"}
    assert parity_report.pairs_of(["a", "[b,c]", "d"]) == [
        f"[{x},{y}]" for x, y in combinations(["a", "b,c", "d"], 2)
    ]


def test_help(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert all(w in printed for w in ("--pairs", "--json", "exit codes"))
    assert main(["--tokens", "3"]) == 2


def test_the_device_is_the_one_that_is_asked_for(
    capsys: Capture, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert main(["encoding=absolute", FEW, "--device", "cuda:7"]) == 71
    assert "device=cuda:7: torch finds no such GPU here" in capsys.readouterr().err
    asked: list[torch.device] = []

    def noted(*given: Any, device: torch.device) -> list[Any]:
        asked.append(device)
        return measure(*given)

    monkeypatch.setattr("nmt.inspect.parity.measure", noted)
    file = tmp_path / "out.json"
    assert main(["encoding=absolute", FEW, "--device", "auto", "--json", str(file)]) == 0
    assert [device.type for device in asked] == [json.loads(file.read_text())["device"]]
