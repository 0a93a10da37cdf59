"""Training several runs: what failed says why, whichever launcher started it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nmt import sweep as run
from nmt.config.hydra_conf import parse, sweep_of
from nmt.sweep import FailedRun, PlannedRun, plan_runs
from tests.in_process import LoggedCommand, start_by

CORPUS: Any = SimpleNamespace(facts={"fingerprint": "abc"})
CORPORA = {"none-seed1": CORPUS, "alibi-seed1": CORPUS}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[PlannedRun]:
    words = ["encoding=none,alibi", f"runs={tmp_path_factory.mktemp('runs')}", "jobs=2"]
    sweep = sweep_of(parse(words), multirun=True)
    assert sweep is not None
    return plan_runs(sweep)[0]


@pytest.fixture
def runs(planned: list[PlannedRun]) -> list[PlannedRun]:
    """Two runs, of which nothing is trained, and no log is there yet."""
    for run_without_log in planned:
        run_without_log.log.unlink(missing_ok=True)
    return planned


def test_a_failure_names_its_last_words(
    runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(command: LoggedCommand) -> int:
        if command.name == "alibi-seed1":
            return -9
        command.log.write_text("step 1\nnmt: out of memory\n")
        return 71

    assert run.describe_progress(runs[0].directory) == "starting"
    start_by(monkeypatch, fails)
    assert run.train_all(runs, CORPORA) == (
        [],
        [
            FailedRun("none-seed1", "training failed (exit 71): nmt: out of memory", runs[0].log),
            FailedRun("alibi-seed1", "training failed (killed by SIGKILL): no output", runs[1].log),
        ],
    )


def test_a_launcher_gets_what_is_to_be_trained_and_its_logs_are_read(
    runs: list[PlannedRun],
) -> None:
    launched: list[str] = []

    def launch(pending: Sequence[PlannedRun]) -> None:
        launched.extend(planned.name for planned in pending)
        runs[0].log.parent.mkdir(exist_ok=True)
        runs[1].log.write_text("nmt: node lost\n")

    assert run.train_all(runs, CORPORA, launch) == (
        [],
        [
            FailedRun("none-seed1", "training did not end: no output", runs[0].log),
            FailedRun("alibi-seed1", "training did not end: nmt: node lost", runs[1].log),
        ],
    )
    assert launched == list(CORPORA)
