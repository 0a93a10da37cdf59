"""The runs of LONGTEXT: all that the plan has, none before what it follows from; their records."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.compare.losses import parts_of_run
from nmt.compare.scores import scorers
from nmt.data import toy
from nmt.data.corpus import read_text
from nmt.experiments.plan import prepare_corpora
from nmt.experiments.run import train_all
from scripts.longtext import __main__ as longtext
from scripts.longtext import one, plan, records, texts
from scripts.longtext.plan import ENCODINGS, RATES, Folders, TrainingRun
from scripts.longtext.records import RunRecord, Table


def finish(folders: Folders, run: TrainingRun, perplexity: float = 2.0) -> None:
    about = {"dev_perplexity": perplexity, "overrides": run.overrides}
    records.write(run.record(folders), RunRecord(about, {}))


def test_rates_are_chosen_by_the_development_text(tmp_path: Path) -> None:
    folders = Folders(tmp_path, tmp_path / "records")
    rates, main, *_ = plan.parts(folders)
    assert len({run.record(folders) for run in rates.runs}) == rates.planned == 36
    assert main.runs == []
    for number in range(2):
        for place, run in enumerate(rates.runs[3 * number : 3 * number + 3]):
            finish(folders, run, 3.0 if place == number else 4.0)
    main = plan.parts(folders)[1]
    settings = [plan.composed(folders, run).settings for run in main.runs]
    assert {s.optim.lr for s in settings if "absolute" in s.encoding} == {float(RATES[0])}
    assert {s.optim.lr for s in settings if "relative" in s.encoding} == {float(RATES[1])}
    assert {name for s in settings for name in s.encoding} == {*ENCODINGS[:2]}
    assert [s.seed for s in settings] == [1, 1, 2, 2, 3, 3]


def test_parts_of_other_text_have_all_runs_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = Folders(tmp_path / "runs", tmp_path / "records", tmp_path / "manuals", tmp_path)
    found = {part.name: part for part in plan.parts(folders)}
    for name in "BCD":
        assert len({run.record(folders) for run in found[name].runs}) == found[name].planned
    for run in found["B"].runs:
        assert plan.composed(folders, run).settings.model.share_layers
    assert {run.parent for run in found["D"].runs} == {
        run for run in found["C"].runs if run.encoding == "absolute"
    }
    for name in (*found, "E"):
        words = [str(folders.runs), "--records", str(folders.records), "--list", "--part", name]
        with pytest.raises(SystemExit) if name == "E" else nullcontext():
            assert longtext.main(words) == 0
    capsys.readouterr()
    finish(folders, found["C"].runs[2])
    words = [str(folders.runs), "--records", str(folders.records), "--list"]
    assert longtext.main([*words, "--scan", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "C      1 of 12 runs,  8.2 hours of a core left; its text was not named\n" in said
    assert "B      0 of 4 runs,  4.0 hours of a core left\n" in said
    assert said.endswith("\n25.2 hours of a core left\n")


@pytest.mark.slow
def test_a_remedy_is_trained_as_its_parent_was(tmp_path: Path) -> None:
    for language in ("de", "en"):
        for name in ("train", "dev", "test"):
            lines = [f"eins {number % 7} zwei {number}." for number in range(60)]
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    folders = Folders(tmp_path / "runs", tmp_path / "records", tmp_path, tmp_path)
    small = "model.dim=16", "model.feedforward_dim=16", "trainer.max_steps=1", "segmenter.merges=9"
    parent = plan.manuals_run("absolute", 1)
    parent = parent._replace(overrides=(*parent.overrides, *small))
    planned = plan.composed(folders, parent)
    assert train_all([planned], prepare_corpora([planned])) == ([planned], [])
    for encoding, share in (("absolute", "0"), ("rotary", "0.5")):
        child = plan.composed(folders, plan.remedy_run(parent, encoding, share))
        trainer, before = child.settings.trainer, planned.settings.trainer
        for name in ("device", "precision", "threads", "batch_tokens", "checkpoints_per_epoch"):
            assert getattr(trainer, name) == getattr(before, name), name
        data = child.settings.data
        assert (data.max_length, data.join) == (50, 1 if share == "0" else 4)
        assert list(child.settings.encoding) == [encoding] and child.settings.model.dim == 16


def test_records_come_back_in_the_same_bytes(tmp_path: Path) -> None:
    tables: dict[str, Table] = {
        "counts": np.array([[0.0, 300.0], [-1.0, 7.0]]), "logs": np.array([-0.5, 2.0]),
        "none": np.zeros((0, 3)),
    }  # fmt: skip
    record = RunRecord({"seed": 1, "curve": [2.5]}, {"whole": tables})
    for name in ("a", "b"):
        records.write(tmp_path / f"below/{name}.npz", record)
    assert (tmp_path / "below/a.npz").read_bytes() == (tmp_path / "below/b.npz").read_bytes()
    found = records.read(tmp_path / "below/a.npz")
    assert found.about == record.about and found.tests.keys() == {"whole"}
    for name, table in tables.items():
        assert np.array_equal(found.tests["whole"][name], table)
    assert found.tests["whole"]["counts"].dtype == np.int16


SMALL = (
    *("experiment=longtext", "encoding=absolute", "trainer.max_steps=3", "data.train_pairs=200"),
    *("data.test_pairs=40", "data.dev_pairs=20", "segmenter.merges=300", "model.dim=16"),
    *("model.feedforward_dim=16", "trainer.log_every=1"),
)


@pytest.mark.slow
def test_a_run_leaves_the_counts_of_its_test_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(tmp_path / "runs", tmp_path / "records")
    run = TrainingRun("A", "absolute-seed1", "absolute", 1, SMALL)
    planned = plan.composed(folders, run)
    tests = texts.tests_of(folders, "A", planned)
    assert [len(read_text(test.reference)) for test in tests] == [40, 240, 120, 60, 30]
    for source, reference in zip(*(read_text(p) for p in tests[4][2:4] if p), strict=True):
        assert toy.translate(source) == reference
    command = longtext.process(folders, run, planned)
    monkeypatch.setattr(one, "parse_test", lambda test: tests[int(test[-1])])
    arguments = [*command.arguments[:3], "0;4", *command.arguments[4:]]
    for _ in range(2):  # trained, then found finished
        one.command(arguments)
        found = records.read(run.record(folders))
    assert found.about["step"] == 3 and found.about["run"] == "absolute-seed1"
    assert found.about["longest_source"] == 48 and len(found.about["curve"]["dev"]) >= 1
    assert str(tmp_path) not in str(found.about)
    assert not any(key.startswith("data.cache") for key in found.about["settings"])
    whole, joined = found.tests["whole"], found.tests["joined8"]
    _scores_are_those_of_the_translations(whole, run, planned, read_text(tests[0].reference))
    assert joined["parts"].shape == (30, 8, 4) and "losses" not in joined
    assert 0.5 < parts_of_run(whole["losses"].astype(float), 10, 1)["beyond"][0] <= 1
    assert (
        found.about["overrides"] == [*SMALL] and found.about["texts"].keys() == found.tests.keys()
    )
    assert run.is_finished(folders)
    beyond = whole["source"] > 48
    assert ((whole["losses"][:, 2] >= 0) == beyond).all() and beyond.any() and not beyond.all()


def _scores_are_those_of_the_translations(
    whole: dict[str, Table], run: TrainingRun, planned: Any, references: list[str]
) -> None:
    kept = planned.directory / "translations"
    outputs = [lines for path in kept.glob("*.txt") if len(lines := read_text(path)) == 40]
    by_name = {s.name: s for s in scorers(references, "en", None, 10, 1)}
    expected = {by_name["chrF2"].score(by_name["chrF2"].counts(o).sum(0)) for o in outputs}
    assert by_name["chrF2"].score(whole["chrF2"].sum(0, dtype=float)) in expected
