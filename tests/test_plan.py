"""Several runs are checked before the first starts; what fits no glob is left out."""

from pathlib import Path

import pytest

from nmt.config.hydra_conf import parse, sweep_of
from nmt.errors import UserError
from nmt.sweep import LeftOut, PlannedRun, plan_runs


def planned(*words: str) -> tuple[list[PlannedRun], list[LeftOut]]:
    sweep = sweep_of(parse(words), multirun=True)
    assert sweep is not None
    return plan_runs(sweep)


def test_two_runs_in_one_directory_are_refused() -> None:
    with pytest.raises(UserError, match=r"would share runs/toy/relative-seed1 with another run"):
        planned("encoding=relative", "model.norm=pre,post")
    with pytest.raises(UserError, match=r"runs/toy/none-seed1: the same run twice"):
        planned("encoding=none,none")


def test_keys_that_stand_in_the_name_need_none(tmp_path: Path) -> None:
    runs, _ = planned("encoding=relative,[gru,relative]", f"runs={tmp_path}")
    assert [run.name for run in runs] == ["relative-seed1", "gru+relative-seed1"]
    assert runs[1].log == tmp_path / "toy" / "gru+relative-seed1.log"
    assert list(runs[1].settings.encoding) == ["gru", "relative"]


def test_runs_on_two_corpora_are_named_by_their_directories() -> None:
    runs, _ = planned("data.name=a,b")
    assert [run.name for run in runs] == ["runs/a/absolute-seed1", "runs/b/absolute-seed1"]


def test_what_fits_no_glob_is_left_out_and_what_is_named_is_refused(tmp_path: Path) -> None:
    """One of the encodings reads columns, which joined lines do not have."""
    words = ["data.join=2", "seed=1", f"runs={tmp_path}"]
    runs, left_out = planned("encoding=glob([laplacian,lstm])", *words)
    assert [run.name for run in runs] == ["lstm-seed1"]
    assert str(left_out[0]).startswith("encoding=laplacian: ")
    with pytest.raises(UserError, match="joined lines have no columns"):
        planned("encoding=none,laplacian", *words)
    with pytest.raises(UserError, match=r"^a sweep: no run is left; .*no columns"):
        planned("encoding=glob(laplacian*)", *words)


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy/alibi-seed1").mkdir(parents=True)
    (tmp_path / "toy/alibi-seed1/.thesis.tex").write_bytes(b"")
    with pytest.raises(UserError, match=r"alibi-seed1: holds .thesis.tex and no run"):
        planned("encoding=alibi", f"runs={tmp_path}")
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["alibi-seed1"]
