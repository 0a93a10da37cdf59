"""nmt-compare: what it plans, what it refuses, what it does twice (nothing), and the whole."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt import manifest, modeldir
from nmt.cli import compare
from nmt.errors import UserError
from nmt.experiments import facts, plan, run, testsets, translate
from nmt.experiments.processes import LoggedCommand
from nmt.experiments.testsets import ParallelFiles
from nmt.experiments.translate import KeptTranslation
from nmt.overrides.options import options_of
from tests.in_process import refuse_commands, start_by

TINY = [
    *("experiment=compare", "model.dim=16", "model.feedforward_dim=16", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "trainer.batch_tokens=100"),
    *("data.train_pairs=60", "data.train_longest=9", "data.dev_pairs=10", "data.test_pairs=20"),
    *("data.test_longest=40", "trainer.max_steps=4", "trainer.log_every=2"),
]


@pytest.fixture
def own_option(tmp_path: Path) -> Path:
    """A directory with an encoding whose table is too short for the development text."""
    directory = tmp_path / "own"
    (directory / "encoding").mkdir(parents=True)
    (directory / "encoding" / "short.yaml").write_text(
        "# @package _global_\nencoding:\n  short: {use: learned, size: 11, beyond: refuse}\n"
    )
    return directory


def test_the_whole_with_a_broken_run_and_again(
    tmp_path: Path,
    own_option: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_by(monkeypatch)
    runs, words = tmp_path / "runs", [*TINY, f"data.cache={tmp_path / 'cache'}"]
    words += ["--runs", str(runs), "--samples", "40", "--bounds", "9,20", "--jobs", "3"]
    words += [f"--{kind}={tmp_path / f'made.{kind}'}" for kind in ("json", "table")]
    words += ["--plot", str(tmp_path / "made.png"), "--config-dir", str(own_option)]
    words += ["data.max_length=10"]
    assert compare.main(["encoding=alibi,short,relative", *words]) == 70
    table, err = capsys.readouterr()
    assert re.search(r"^relative +\d", table, re.M) and re.search(r"^alibi +0 ", table, re.M)
    assert "short: training failed (exit 65): nmt: data.dev_source" in table
    assert "1 of 3 encodings failed: short: training failed" in err
    assert f"see {runs / 'short.log'}" in err and (runs / "short.log").exists()
    assert "greedy search" in table and "up to 3 processes at once" in table
    assert "^" in table and "BLEU over 20" in table and "Every model made 4 updates." in table
    made = json.loads((tmp_path / "made.json").read_bytes())
    assert set(made["order"]) == {"relative", "alibi"}
    relative = next(each for each in made["report"]["systems"] if each["label"] == "relative")
    model = modeldir.load(runs / "relative").model
    assert relative["parameters"] == sum(p.numel() for p in model.parameters())
    own = [*model.encoder_encodings.parameters(), *model.decoder_encodings.parameters()]
    assert relative["encoding_parameters"] == sum(p.numel() for p in own) > 0
    (run,) = relative["runs"]
    assert run["tokens_per_second"] > 0 and run["step"] == 4
    assert made["missing"][0]["label"] == "short"
    assert set(made["report"]["about"]["settings"]) == {"relative", "alibi"}
    assert (tmp_path / "made.table").read_text().count("\n| ") == 3
    assert (tmp_path / "made.png").stat().st_size > 5000

    # the same again without the broken one: nothing is trained or translated twice
    start_by(monkeypatch, refuse_commands)
    assert compare.main(["encoding=alibi,relative", *words]) == 0
    again = capsys.readouterr().out
    lines = [line for line in table.split("\n") if re.match(r"(relative|alibi) ", line)]
    assert len(lines) == 2 and all(line in again for line in lines)

    # translations of another checkpoint, text or search are made anew, and by name
    record = runs / "alibi" / translate.TRANSLATIONS / "test.json"
    record.write_bytes(record.read_bytes().replace(b'"beam_size": 1', b'"beam_size": 2'))
    started: list[list[LoggedCommand]] = []

    def translates(commands: list[LoggedCommand], *rest: Any) -> dict[str, int]:
        started.append(commands)
        return {c.name: 0 for c in commands}

    start_by(monkeypatch, translates)
    words.remove("--plot")
    words.remove(str(tmp_path / "made.png"))
    assert compare.main(["encoding=alibi,relative", *words]) == 0
    assert [(c.name, c.module) for c in started[0]] == [("alibi", "translate")]

    # a larger budget is no longer finished, and a run that does not reach it is not in the table
    started.clear()
    capsys.readouterr()
    longer = [word.replace("max_steps=4", "max_steps=6") for word in words]
    assert compare.main(["encoding=alibi", *longer]) == 70
    out, err = capsys.readouterr()
    assert [c.module for c in started[0]] == ["train"]
    assert out == "" and err.count("training stopped before its budget was spent") == 1

    # another config in the same directory is refused before anything starts
    start_by(monkeypatch, refuse_commands)
    other = [word.replace("model.dim=16", "model.dim=32") for word in words]
    assert compare.main(["encoding=alibi", *other]) == 2
    assert "another config: model.dim: 16 -> 32" in capsys.readouterr().err


WRONG = {
    "misspelt": (["encoding=none,relativ"], "encoding=relativ: no such option; did you mean"),
    "impossible": (["encoding=none,alibi", "model.heads=3"], "model.heads=3: must divide"),
    "twice": (["encoding=none,none"], "encoding=none: named twice"),
    "nothing": (["seed=2"], "say once what to compare, encoding=all or"),
    "name": (["encoding=none", "name=x"], "name=x: each run has its own; use --runs DIR"),
    "sweep": (["encoding=none", "seed=1,2"], "seed=1,2: several values"),
    "metric": (["encoding=none", "--metric", "BLUE"], "no metric 'BLUE'"),
    "metrics": (["encoding=none", "--metric", "BLEU,TER"], "give one"),
    "jobs": (["encoding=none", "--jobs", "0"], "--jobs: 0: expected an integer from 1"),
    "bounds": (["encoding=none", "--bounds", "9,3"], "--bounds 9,3: each"),
    "picture": (["encoding=none", "--plot", "x.gif"], "must end in one of"),
    "no test set": (["encoding=none", "data=files", "data.root=."], "data.test_source"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=list(WRONG))
def test_refused_before_the_first_job(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start_by(monkeypatch, refuse_commands)
    assert compare.main([*words, "--runs", str(tmp_path / "runs")]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""
    assert not (tmp_path / "runs").exists()


def test_all_takes_every_option_and_says_what_it_left_out(
    own_option: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["encoding=all", "--config-dir", str(own_option), "seed=2"]
    _, encodings, overrides = compare.understood(arguments)
    assert set(encodings) == {*options_of("encoding"), "short"}
    checked: list[Any] = []

    def check(settings: Any) -> None:
        checked.append(settings)
        if "alibi" in settings.encoding:
            raise UserError("alibi cannot be here")

    monkeypatch.setattr("nmt.experiments.plan.build.check", check)
    few = ["alibi", "none", "short"]
    plans, missing = plan.plan_encodings(few, overrides, tmp_path, lenient=True)
    assert [(each.label, each.why, each.log) for each in missing] == [
        ("alibi", "alibi cannot be here", None)
    ]
    assert [(planned.name, planned.settings.seed) for planned in plans] == [
        ("none", 2),
        ("short", 2),
    ]
    assert len(checked) == 3
    with pytest.raises(UserError, match="alibi cannot be here"):
        plan.plan_encodings(few, overrides, tmp_path)


def test_compositions_have_one_name_and_one_directory(tmp_path: Path) -> None:
    assert plan.choices("a,[b,c], d") == ["a", "[b,c]", "d"]
    where = tmp_path / "it's, odd"
    (one,), _ = plan.plan_encodings(["[absolute,relative]"], [], where)
    assert one.name == "absolute+relative"
    assert list(one.settings.encoding) == ["absolute", "relative"]
    assert one.directory == where / "absolute+relative"
    assert one.log == where / "absolute+relative.log"


def test_a_directory_of_other_things_is_refused_by_the_plan(tmp_path: Path) -> None:
    (tmp_path / "alibi").mkdir()
    (tmp_path / "alibi/.thesis.tex").write_bytes(b"")
    with pytest.raises(UserError, match=r"alibi: holds .thesis.tex and no run"):
        plan.plan_encodings(["relative", "alibi"], TINY, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["alibi", ".thesis.tex"]


def test_columns_beside_the_test_text_travel_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of integers is handed to nmt-translate, and its content decides on reuse."""
    words = ["data=files", "data.root=x", "data.test_source=s", "data.test_target=t"]
    column = "+data.columns.depth={per: word, train: a, dev: b, test: %s}"
    (planned,), _ = plan.plan_encodings(["none"], [*words, column % "null"], tmp_path)
    with pytest.raises(UserError, match=r"data\.columns\.depth\.test: no value; name the"):
        testsets.refuse_unnamed([planned])
    for name in ("s", "t", "c", manifest.NAME):
        (tmp_path / name).write_bytes(b"1\n")
    (planned,), _ = plan.plan_encodings(
        ["none"], [*words, column % f"'{tmp_path / 'c'}'"], tmp_path
    )
    monkeypatch.setattr("nmt.experiments.translate.modelpath.locate", lambda path: tmp_path)
    (planned.directory / translate.TRANSLATIONS).mkdir(parents=True)
    started: list[LoggedCommand] = []

    def translates(commands: list[LoggedCommand], *rest: Any) -> dict[str, int]:
        started.extend(commands)
        (planned.directory / translate.TRANSLATIONS / "test.txt").write_bytes(b"good\n")
        return {c.name: 0 for c in commands}

    start_by(monkeypatch, translates)
    test = ParallelFiles("test", "", tmp_path / "s", tmp_path / "t")
    kept = [KeptTranslation(planned, test)]
    for _ in range(2):
        assert translate.translate_all(kept, 1) == ({(planned.directory, "test"): ["good"]}, [])
    assert len(started) == 1
    at = started[0].arguments.index("--columns")
    assert started[0].arguments[at + 1] == f"depth={tmp_path / 'c'}"
    (tmp_path / "c").write_bytes(b"2\n")
    translate.translate_all(kept, 1)
    assert len(started) == 2


def test_a_failure_names_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, _ = plan.plan_encodings(["none", "alibi"], TINY, tmp_path / "runs")

    def fails(
        commands: Sequence[LoggedCommand], at_once: int, state: Callable[[str], str]
    ) -> dict[str, int]:
        assert state("none") == "starting"
        (tmp_path / "runs" / "none.log").write_text("step 1\nnmt: out of memory\n")
        return {"none": 71, "alibi": -9}

    start_by(monkeypatch, fails)
    missing = run.train_all(plans, {"none": "abc", "alibi": "abc"}, 2)
    assert [(each.label, each.why) for each in missing] == [
        ("none", "training failed (exit 71): nmt: out of memory"),
        ("alibi", "training failed (killed by SIGKILL): no output"),
    ]


def test_a_launcher_gets_what_is_to_be_trained_and_its_logs_are_read(tmp_path: Path) -> None:
    plans, _ = plan.plan_encodings(["none", "alibi"], TINY, tmp_path / "runs")
    launched: list[str] = []

    def launch(pending: Sequence[plan.PlannedRun]) -> None:
        launched.extend(planned.name for planned in pending)
        plans[1].log.write_text("nmt: node lost\n")

    missing = run.train_all(plans, {"none": "abc", "alibi": "abc"}, 2, launch)
    assert launched == ["none", "alibi"]
    assert [(each.label, each.why, each.log) for each in missing] == [
        ("none", "training did not end: no output", str(plans[0].log)),
        ("alibi", "training did not end: nmt: node lost", str(plans[1].log)),
    ]


def test_the_state_of_a_run_is_its_last_whole_line(tmp_path: Path) -> None:
    assert run.progress(tmp_path) == "starting"
    (tmp_path / "metrics.jsonl").write_text(
        '{"kind": "train", "step": 50, "lr": 1, "tokens_per_second": 9, "perplexity": 9.5e145}\n'
        "\0\0\0\n"
        '{"kind": "skipped", "step": 51}\n{"kind": "dev", "st'
    )
    assert run.progress(tmp_path) == "step 50, train perplexity 9.5e+145"


def test_a_table_says_what_its_runs_share() -> None:
    search = ["decode.beam_size=3", "decode.alpha=0.5"]
    (one,), _ = plan.plan_encodings(["none"], search, Path("runs"))
    assert facts.search_of(one.settings) == "beam search of 3, alpha 0.5"
    assert "20 epochs" in " ".join(facts.shared_settings(one.settings, "seed 1"))
    (one,), _ = plan.plan_encodings(["none"], ["experiment=compare"], Path("runs"))
    assert facts.search_of(one.settings) == "greedy search"
    shared = " ".join(facts.shared_settings(one.settings, "seed 1"))
    assert f"{one.settings.trainer.max_steps} updates" in shared and "seed 1." in shared
