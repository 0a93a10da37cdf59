"""Who may write into a run directory, and with which config."""

import json
import os
from pathlib import Path

import pytest
import torch

from nmt import modeldir
from nmt.config.settings import freeze
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.training import run as training
from nmt.training.directory import ELSEWHERE, differences, open_run, progress
from nmt.training.run import fit
from tests.training import tiny


def test_another_config_is_refused_with_a_list(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    before = tiny.tree(tmp_path)
    other = {"optim__lr": 0.1, "model__tie": "none", "encoding": {"relative": {"tau": 4}}}
    with pytest.raises(UserError) as error:
        tiny.reopen(tmp_path / "run", **other, decode__target_language="ita_Latn")
    tiny.reopen(tmp_path / "run", trainer__max_steps=1)  # the lock is free, though the error lives
    assert error.value.code == Exit.USAGE
    assert str(error.value) == (
        f"{tmp_path}/run/config.json: another config: decode.target_language: null -> ita_Latn, "
        'encoding: ["absolute"] -> ["relative"], encoding.relative.tau: absent -> 4, '
        f"model.tie: all -> none, optim.lr: 0.01 -> 0.1; {ELSEWHERE}"
    )
    assert tiny.tree(tmp_path) == before


def test_limits_and_paths_may_differ_and_the_order_of_encodings_may_not() -> None:
    one = freeze(tiny.settings(trainer__init_from="parent"))
    free = {"trainer__init_from": "moved", "trainer__max_steps": 3, "decode__beam_size": 7}
    assert differences(one, freeze(tiny.settings(**free, data__train_source="elsewhere"))) == []
    encodings = [("absolute", {}), ("relative", {"tau": 4})]
    one, two = (freeze(tiny.settings(encoding=dict(e))) for e in (encodings, encodings[::-1]))
    assert differences(one, two) == [
        'encoding: ["absolute", "relative"] -> ["relative", "absolute"]'
    ]


def test_finished_says_so_and_changes_nothing(data: Prepared, tmp_path: Path) -> None:
    first = tiny.train(tmp_path / "run", data, trainer__max_steps=3)
    assert progress(tmp_path / "run") == (3, 3)
    before = tiny.tree(tmp_path / "run")
    again = tiny.train(tmp_path / "run", data, trainer__max_steps=3)
    assert (again.step, again.code, again.best) == (3, Exit.OK, first.best)
    assert str(again).startswith("already finished at step 3, best dev perplexity")
    assert str(first).startswith("finished at step 3")
    assert tiny.tree(tmp_path / "run") == before
    longer = {"trainer__max_steps": 4, "data__cache": "elsewhere", "decode__beam_size": 7}
    assert tiny.train(tmp_path / "run", data, **longer).step == 4
    written = json.loads((tmp_path / "run/config.json").read_bytes())
    assert (written["decode"]["beam_size"], written["trainer"]["max_steps"]) == (7, 4)


def test_a_held_directory_is_refused_with_its_holder(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", tiny.settings()):
        for _ in range(2):  # asking does not loosen the lock
            with pytest.raises(UserError, match=f"in use by process {os.getpid()} on") as error:
                tiny.reopen(tmp_path / "run")
            assert error.value.code == Exit.CANT_CREATE
    tiny.reopen(tmp_path / "run")


@pytest.mark.parametrize(
    "held", [".bashrc", "best", "tb/x", "checkpoints/epoch1.pt", "metrics.jsonl", "config.json"]
)
def test_a_directory_of_other_things_is_refused_and_left_as_it_was(
    held: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / held).parent.mkdir(parents=True)
    (home / held).write_bytes(b'{"precious": 1}')
    before = tiny.tree(tmp_path)
    shown = held.split("/")[0]
    with pytest.raises(
        UserError, match=rf"holds {shown} and no run.*choose another directory: runs="
    ) as error:
        tiny.reopen(home)
    assert error.value.code == Exit.CANT_CREATE
    assert tiny.tree(tmp_path) == before


def test_impossible_choices_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        with pytest.raises(UserError, match="choose another directory: runs=") as error:
            tiny.reopen(tmp_path / place)
        assert error.value.code == Exit.CANT_CREATE
    with pytest.raises(UserError, match="device=abacus") as error:
        tiny.reopen(tmp_path / "run", trainer__device="abacus")
    assert error.value.code == Exit.USAGE
    assert not (tmp_path / "run").exists()


def test_a_lost_config_beside_checkpoints_is_refused(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    (tmp_path / "run/config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json: the file is missing") as error:
        tiny.reopen(tmp_path / "run")
    assert error.value.code == Exit.DATA


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device", "there"), torch.OutOfMemoryError("all taken")],
    ids=lambda error: type(error).__name__,
)
def test_a_first_try_that_failed_does_not_block_its_name(
    error: Exception, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(optimizer: object) -> None:
        raise error

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        tiny.at_update(patch, 1, fails)
        with pytest.raises(UserError) as raised:
            tiny.train(run, data)
    assert not modeldir.checkpoints(run / "checkpoints")
    for word in ("checkpoint is intact", "another name", "resume"):
        assert word not in str(raised.value)
    other = {"optim__lr": 0.02, "encoding": {"relative": {"tau": 4}}, "trainer__max_steps": 1}
    assert tiny.train(run, data, **other).step == 1
    assert json.loads((run / "config.json").read_bytes())["optim"]["lr"] == 0.02
    with pytest.raises(UserError, match="another config"):  # from now on they belong together
        tiny.reopen(run)


@pytest.mark.parametrize("there", ["", "runs", "runs/group/run"])
def test_a_first_try_that_fails_before_training_leaves_no_directory(
    there: str, tmp_path: Path
) -> None:
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    lost = tiny.settings(data__train_source=str(tmp_path / "lost"), data__cache=str(tmp_path / "c"))
    with pytest.raises(UserError, match="lost: no such file") as error:
        training.train(lost, tmp_path / "runs/group/run")
    assert error.value.code == Exit.NO_INPUT
    user_made = there == "runs/group/run"  # which stays
    left = sorted(path for path in tmp_path.rglob("*") if path.name != "c")
    assert (tmp_path / there).is_dir() if user_made else left == before


def test_divergence_before_the_first_checkpoint_speaks_of_none(
    data: Prepared, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="diverged") as raised:
        tiny.train(tmp_path / "run", data, optim__lr=10.0, model__dim=64)
    assert str(raised.value) == (
        "step 2: the dev perplexity is inf; training diverged; "
        "there is no checkpoint yet; try a lower optim.lr"
    )
    assert raised.value.code == Exit.DIVERGED
    assert not list((tmp_path / "run/checkpoints").iterdir())
    assert tiny.train(tmp_path / "run", data, optim__lr=0.001, trainer__max_steps=1).step == 1


def test_a_refused_continuation_changes_nothing_but_the_log(data: Prepared, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny.train(run, data, trainer__max_steps=1)
    before = {**tiny.tree(run), "train.log": ""}
    other = data._replace(facts={**data.facts, "fingerprint": "other"})
    for steps in (2, 1):  # also where nothing is left to do
        with pytest.raises(UserError, match="trained on other data") as error:
            tiny.train(run, other, trainer__max_steps=steps)
        assert error.value.code == Exit.DATA
        assert {**tiny.tree(run), "train.log": ""} == before


def test_fewer_steps_than_were_made_finish_a_run_for_all(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 3)
        tiny.train(run, data)
    assert progress(run) == (3, 12)
    assert str(tiny.train(run, data, trainer__max_steps=2)).startswith("already finished at step 3")
    assert progress(run) == (3, 3)


def test_what_is_no_run_has_no_progress(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config.json: the file is missing"):
        progress(tmp_path)
    (tmp_path / "config.json").write_bytes(manifest.dump(freeze(tiny.settings())))
    with pytest.raises(UserError, match="no checkpoint yet"):
        progress(tmp_path)


def test_an_error_of_ours_is_recorded_and_shown_whole(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.at_update(monkeypatch, 1, lambda optimizer: 1 / 0)
    with pytest.raises(ZeroDivisionError), open_run(tmp_path / "run", tiny.settings()) as run:
        fit(data, run)
    assert b"failed: division by zero" in (tmp_path / "run/train.log").read_bytes()
