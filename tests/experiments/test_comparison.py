"""What an experiment plans, refuses and trains, run by run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import UserError
from nmt.experiments import facts, plan, run
from nmt.experiments.processes import LoggedCommand
from nmt.overrides.options import beside
from tests.in_process import start_by

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


def test_lenient_plans_say_what_they_left_out(
    own_option: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*beside(str(own_option)), "seed=2"]
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
