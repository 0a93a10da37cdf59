"""The runs of LONGTEXT: all that the plan has, none before what it follows from."""

import json
from pathlib import Path

import pytest

from nmt.experiments.plan import PlannedRun
from scripts import longtext
from scripts.longtext import ENCODINGS, RATES, Places


def finish(run: PlannedRun, perplexity: float = 2.0) -> None:
    run.directory.mkdir(parents=True)
    (run.directory / "status.json").write_text(json.dumps({"state": "finished"}))
    line = {"kind": "dev", "step": 1, "perplexity": perplexity}
    (run.directory / "metrics.jsonl").write_text(json.dumps(line) + "\n")


def test_rates_are_chosen_by_the_development_text(tmp_path: Path) -> None:
    places = Places(tmp_path, None, None)
    rates, main = longtext.parts(places)
    assert len(rates.runs) == rates.planned == len({run.directory for run in rates.runs}) == 36
    assert main.runs == []
    by_encoding = [rates.runs[i : i + 3] for i in range(0, 36, 3)]
    for number, runs in enumerate(by_encoding[:2]):
        for place, run in enumerate(runs):
            finish(run, 3.0 if place == number else 4.0)
    _, main = longtext.parts(places)
    assert [run.settings.optim.lr for run in main.runs] == [float(RATES[0])] * 3 + [
        float(RATES[1])
    ] * 3
    assert {name for run in main.runs for name in run.settings.encoding} == {*ENCODINGS[:2]}
    assert {run.settings.seed for run in main.runs} == {1, 2, 3}


def test_parts_of_other_text_have_all_runs_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = Places(tmp_path / "runs", tmp_path / "manuals", tmp_path / "scan")
    found = {part.name: part for part in longtext.parts(places)}
    assert [len(found[name].runs) for name in "BC"] == [found[name].planned for name in "BC"]
    assert all(run.settings.model.share_layers for run in found["B"].runs)
    assert found["D"].runs == [], "its parents are not trained"
    finish(found["C"].runs[2])
    assert "C      1 of 12 runs,  8.2 hours of a core left" in [
        *longtext.remaining(list(longtext.parts(Places(tmp_path / "runs", tmp_path, None))))
    ]
    assert longtext.main([str(tmp_path / "runs"), "--list"]) == 0
    assert capsys.readouterr().out.endswith("\n10.0 hours of a core left\n")
