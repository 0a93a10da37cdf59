"""Who may write into a run directory, and with which config."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import modeldir
from nmt.config.settings import freeze, is_path
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.training import run as training
from nmt.training.directory import ELSEWHERE, MAY_DIFFER, differences, open_run, progress
from nmt.training.run import fit
from tests.training import tiny


def test_another_config_is_refused_with_a_list(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    before = tiny.tree(tmp_path)
    other = {"optim__lr": 0.1, "model__tie": "none", "encoding": {"relative": {"tau": 4}}}
    with pytest.raises(UserError) as error:
        tiny.reopen(tmp_path / "run", **other, decode__target_language="ita_Latn")
    assert error.value.code == Exit.USAGE
    assert str(error.value) == (
        f"{tmp_path}/run/config.json: another config: decode.target_language: null -> ita_Latn, "
        'encoding: ["absolute"] -> ["relative"], encoding.relative.tau: absent -> 4, '
        f"model.tie: all -> none, optim.lr: 0.01 -> 0.1; {ELSEWHERE}"
    )
    assert tiny.tree(tmp_path) == before


def test_the_order_of_encodings_is_a_difference() -> None:
    one = freeze(tiny.settings(encoding={"absolute": {}, "relative": {"tau": 4}}))
    two = freeze(tiny.settings(encoding={"relative": {"tau": 4}, "absolute": {}}))
    assert differences(one, two) == [
        'encoding: ["absolute", "relative"] -> ["relative", "absolute"]'
    ]


@pytest.mark.parametrize("metric", ["perplexity", "bleu"])
def test_exactly_the_documented_keys_may_differ(metric: str) -> None:
    changes = {"trainer__init_from": "parent", "trainer__dev_metric": metric}
    plain = freeze(tiny.settings(**changes))
    allowed = {"decode"} | {key for key in MAY_DIFFER if "." in key}
    fixed = {"decode.source_language", "decode.target_language"}
    fixed |= {"decode.length_ratio"} if metric == "bleu" else set()
    for group in ("data", "segmenter", "model", "optim", "trainer", "decode"):
        for key in plain[group]:
            changed = {**plain, group: {**plain[group], key: "another"}}
            free = {f"{group}.{key}", group} & allowed or is_path(f"{group}.{key}")
            free = free and f"{group}.{key}" not in fixed
            value = plain[group][key]
            was = "absent" if value == {} else shown(value)
            expected = [] if free else [f"{group}.{key}: {was} -> another"]
            assert differences(plain, changed) == expected
    assert allowed == {  # as README and --help say
        *("trainer.max_epochs", "trainer.max_steps", "trainer.threads", "trainer.log_every"),
        *("trainer.keep_checkpoints", "trainer.tensorboard", "trainer.gradient_checkpointing"),
        *("trainer.deterministic", "data.workers", "decode"),
        *("trainer.max_hours", "trainer.early_stopping", "trainer.keep_best", "trainer.callback"),
        *("trainer.compile", "trainer.device", "trainer.nonfinite_patience", "trainer.target"),
    }


def shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_other_limits_and_paths_resume(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    again = {"trainer__max_steps": 2, "data__cache": "elsewhere", "decode__beam_size": 7}
    assert tiny.train(tmp_path / "run", data, **again).step == 2
    written = json.loads((tmp_path / "run/config.json").read_bytes())
    assert (written["decode"]["beam_size"], written["trainer"]["max_steps"]) == (7, 2)


def test_finished_says_so_and_changes_nothing(data: Prepared, tmp_path: Path) -> None:
    first = tiny.train(tmp_path / "run", data, trainer__max_steps=3)
    before = tiny.tree(tmp_path / "run")
    again = tiny.train(tmp_path / "run", data, trainer__max_steps=3)
    assert (again.step, again.code, again.best) == (3, Exit.OK, first.best)
    assert str(again).startswith("already finished at step 3, best dev perplexity")
    assert str(first).startswith("finished at step 3")
    assert tiny.tree(tmp_path / "run") == before


def test_another_number_of_threads_is_told(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    state = next((tmp_path / "run/checkpoints").iterdir()) / "state.json"
    assert set(json.loads(state.read_bytes())["environment"]) == {
        *("nmt", "torch", "device", "threads", "capability", "format", "compiled", "processor"),
        "workers",
    }
    with caplog.at_level(logging.WARNING):
        tiny.train(tmp_path / "run", data, trainer__max_steps=2)
        assert "not bit-identical" not in caplog.text
        try:
            tiny.train(tmp_path / "run", data, trainer__max_steps=3, trainer__threads=2)
        finally:
            tiny.train(tmp_path / "other", data, trainer__max_steps=1)  # back to one thread
    assert "not bit-identical" in caplog.text and "threads 1 -> 2" in caplog.text


def test_a_held_directory_is_refused_with_its_holder(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", tiny.settings()):
        for _ in range(2):  # asking does not loosen the lock
            with pytest.raises(UserError, match=f"in use by process {os.getpid()} on") as error:
                tiny.reopen(tmp_path / "run")
            assert error.value.code == Exit.CANT_CREATE
    tiny.reopen(tmp_path / "run")


def test_places_that_cannot_be_run_directories(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_bytes(b"")
    for place in ("file", "file/below", "full"):
        with pytest.raises(UserError, match="choose another directory: runs=") as error:
            tiny.reopen(tmp_path / place)
        assert error.value.code == Exit.CANT_CREATE


@pytest.mark.parametrize(
    "held",
    [
        *(".bashrc", ".lock", ".holder", "del.licious.txt", "notes.tmp-final", "best", "tb/x"),
        *("checkpoints/epoch1.pt", "checkpoints/del.icious", "metrics.jsonl"),
        *("config.json", "translations/x.txt"),
    ],
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


def test_files_of_a_user_beside_a_run_stay(data: Prepared, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny.train(run, data, trainer__max_steps=1)
    names = ["del.icious", "results.tmp-final.txt", ".notes", "checkpoints/del.icious"]
    names += ["checkpoints/step-00000001.tmp-mine", "best.tmp-12"]
    for name in names:
        (run / name).write_bytes(b"precious")
    tiny.train(run, data, trainer__max_steps=2)
    assert [(run / name).read_bytes() for name in names] == [b"precious"] * len(names)


def test_a_failed_opening_lets_go_of_the_lock(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    with pytest.raises(UserError) as error:  # held on to, and with it all that the frames hold
        tiny.reopen(tmp_path / "run", seed=9)
    tiny.reopen(tmp_path / "run")
    assert "seed: 3 -> 9" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trainer__max_epochs": None}, "trainer.max_epochs and trainer.max_steps are null"),
        ({"trainer__device": "abacus"}, "device=abacus"),
        ({"optim__min_lr": 1.0}, "optim.min_lr=1.0: larger than"),
    ],
)
def test_impossible_choices_are_refused_before_anything_is_made(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said) as error:
        tiny.reopen(tmp_path / "run", **changes)
    assert error.value.code == Exit.USAGE
    assert not (tmp_path / "run").exists()


def test_a_lost_config_beside_checkpoints_is_refused(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    (tmp_path / "run/config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json: the file is missing") as error:
        tiny.reopen(tmp_path / "run")
    assert error.value.code == Exit.DATA


def broken(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the first update of a run fail."""

    def fails(batch: object, device: object) -> int:
        raise error

    patch.setattr("nmt.training.feed.to_device", fails)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "there"),
        torch.OutOfMemoryError("all taken"),
        UserError("no such tree"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_first_try_that_failed_does_not_block_its_name(
    error: Exception, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        broken(patch, error)
        with pytest.raises(UserError) as raised:
            tiny.train(run, data)
    assert not modeldir.checkpoints(run / "checkpoints")
    assert "checkpoint is intact" not in str(raised.value)
    assert "another name" not in str(raised.value) and "resume" not in str(raised.value)
    other = {"optim__lr": 0.02, "encoding": {"relative": {"tau": 4}}, "trainer__max_steps": 1}
    assert tiny.train(run, data, **other).step == 1
    assert json.loads((run / "config.json").read_bytes())["optim"]["lr"] == 0.02
    with pytest.raises(UserError, match="another config"):  # from now on they belong together
        tiny.reopen(run)


def failing(error: BaseException) -> Callable[..., Any]:
    """A function that raises an error."""

    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (
            "nmt.training.corpus.prepare",
            UserError("data.root=nowhere: no such directory", Exit.NO_INPUT),
        ),
        ("nmt.training.corpus.prepare", KeyboardInterrupt()),
        ("nmt.training.trainer.check_data", UserError("too long", Exit.DATA)),
        ("nmt.training.checkpoint.Checkpoints.recover", OSError(5, "Input/output error")),
    ],
    ids=["corpus", "Ctrl-C", "trainer", "disk"],
)
@pytest.mark.parametrize("there", ["", "runs", "runs/group/run"])
def test_a_first_try_that_fails_before_training_leaves_no_directory(
    there: str,
    where: str,
    error: BaseException,
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("nmt.training.corpus.prepare", lambda *_: data)
    monkeypatch.setattr(where, failing(error))
    with pytest.raises(type(error)):
        training.train(tiny.settings(), tmp_path / "runs/group/run")
    left = sorted(tmp_path.rglob("*"))
    user_made = there == "runs/group/run"  # which stays
    assert (tmp_path / there).is_dir() if user_made else left == before


def test_a_file_of_a_user_keeps_the_directory_of_a_failed_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Prepared:
        (tmp_path / "runs/run/notes").write_bytes(b"precious")
        raise UserError("no such corpus")

    monkeypatch.setattr("nmt.training.corpus.prepare", fail)
    with pytest.raises(UserError, match="no such corpus"):
        training.train(tiny.settings(), tmp_path / "runs/run")
    assert (tmp_path / "runs/run/notes").read_bytes() == b"precious"


@pytest.mark.parametrize("seen", [float("nan"), float("inf")])
def test_divergence_before_the_first_checkpoint_speaks_of_none(
    seen: float, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.training.validation.perplexity", lambda *_: seen)
    with pytest.raises(UserError, match="diverged") as raised:
        tiny.train(tmp_path / "run", data)
    assert str(raised.value) == (
        f"step 2: the dev perplexity is {seen}; training diverged; "
        "there is no checkpoint yet; try a lower optim.lr"
    )
    assert raised.value.code == Exit.DIVERGED
    assert not list((tmp_path / "run/checkpoints").iterdir())
    monkeypatch.undo()
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


def test_the_checkpoints_say_that_a_run_is_finished(data: Prepared, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny.train(run, data, trainer__max_steps=1)
    assert progress(run) == (1, 1)
    assert str(tiny.train(run, data, trainer__max_steps=1)).startswith("already finished")


def test_a_run_that_was_killed_stands_where_its_checkpoint_is(
    data: Prepared, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    tiny.train(run, data, trainer__max_steps=1)
    written = json.loads((run / "config.json").read_bytes())
    written["trainer"]["max_steps"] = 2
    (run / "config.json").write_bytes(json.dumps(written).encode())
    assert progress(run) == (1, 2)


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


def test_a_damaged_last_checkpoint_counts_for_nobody(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "checkpoints/step-00000012/optim.safetensors").write_bytes(b"")
    assert progress(run) == (10, 12)
    (record,) = caplog.records
    assert "step-00000012/optim.safetensors" in record.getMessage()
    assert not tiny.reopen(run).finished
    assert progress(run) == (10, 12)


def test_what_is_no_run_has_no_progress(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config.json: the file is missing"):
        progress(tmp_path)
    (tmp_path / "config.json").write_bytes(manifest.dump(freeze(tiny.settings())))
    with pytest.raises(UserError, match="no checkpoint yet"):
        progress(tmp_path)


def test_an_error_of_ours_is_recorded_and_shown_whole(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.training.feed.to_device", lambda batch, device: 1 / 0)
    with pytest.raises(ZeroDivisionError), open_run(tmp_path / "run", tiny.settings()) as run:
        fit(data, run)
    assert b"failed: division by zero" in (tmp_path / "run/train.log").read_bytes()
