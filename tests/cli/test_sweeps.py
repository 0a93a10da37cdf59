"""nmt-train -m: several runs, trained as processes or by a launcher of Hydra."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from nmt.cli.train import main as train
from tests.in_process import LoggedCommand, noting, refuse_commands, start_by

TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "trainer.batch_tokens=100", "trainer.max_steps=2"),
    *("data.train_pairs=40", "data.train_longest=9", "data.dev_pairs=5", "data.test_pairs=5"),
    *("decode=greedy", "trainer.log_every=1", "trainer.tensorboard=false", "trainer.device=cpu"),
]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    return [*TINY, f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path / 'runs'}"]


def test_a_sweep_trains_each_run_once_and_says_what_to_type_next(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_by(monkeypatch)
    toy = tmp_path / "runs" / "toy"
    assert train(["-m", "encoding=none,relative", "jobs=2", *words]) == 0
    out, err = capsys.readouterr()
    assert out == f"{toy}/none-seed1\n{toy}/relative-seed1\n"
    assert "2 runs, 0 of them finished, 2 at once" in err
    runs = f"{toy}/none-seed1 {toy}/relative-seed1"
    assert err.endswith(f"\nnext:  nmt-evaluate {runs}\n") and "nmt-translate" not in err

    assert err.count("corpus: ") == 1
    assert "finished at step 2" in (toy / "none-seed1.log").read_text()

    # what is there is not trained again; a failing run stops no other and is named at the end
    started: list[LoggedCommand] = []
    start_by(monkeypatch, noting(started, 70))
    assert train(["-m", "encoding=none,alibi", *words]) == 70
    out, err = capsys.readouterr()
    assert [each.name for each in started] == ["alibi-seed1"]
    assert out == f"{toy}/none-seed1\n"
    said = "1 of 2 runs failed: alibi-seed1: training failed (exit 70): no output; see "
    assert f"{said}{toy}/alibi-seed1.log" in err

    # what was trained with another config is refused before anything starts
    start_by(monkeypatch, refuse_commands)
    assert train(["-m", "encoding=none,alibi", *words, "model.norm=post"]) == 2
    assert "another config: " in (err := capsys.readouterr().err) and "runs=DIR" in err


def test_what_fits_no_glob_is_left_out_with_a_warning(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[LoggedCommand] = []
    start_by(monkeypatch, noting(started, 70))
    odd = ["model.dim=15", "model.heads=3", *words]
    assert train(["-m", "encoding=glob([none,rotary])", *odd[:2], *words[3:]]) == 70
    assert [each.name for each in started] == ["none-seed1"]
    assert "left out: encoding=rotary: " in capsys.readouterr().err
    start_by(monkeypatch, refuse_commands)
    assert train(["-m", "encoding=none,rotary", *odd[:2], *words[3:]]) == 2
    assert capsys.readouterr().err.count("\n") == 1


PLUGIN = "hydra_plugins.hydra_joblib_launcher"


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("hydra_plugins") and find_spec(PLUGIN)), reason="needs the extra `sweep`"
)
def test_the_joblib_launcher_trains_what_is_not_finished(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblib = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert train(["encoding=none", *words]) == 0
    assert train(["-m", "encoding=none,relative,alibi", *joblib, *words]) == 0
    out = capsys.readouterr().out.split("\n")
    assert len(out) == 5
    toy = tmp_path / "runs" / "toy"
    assert not (toy / "none-seed1.log").exists()
    for name in ("relative", "alibi"):
        assert "finished at step 2" in (toy / f"{name}-seed1.log").read_text()
