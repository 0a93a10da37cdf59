"""What is wrong with a parent is said in one line, before any text is prepared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import build, modeldir
from nmt.cli.train import main as train
from nmt.config.compose import experiment_of
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.training import corpus
from nmt.training import run as training
from nmt.training.distributed import World
from tests.training import tiny

SMALL = [
    *("data.train_pairs=20", "data.dev_pairs=5", "data.test_pairs=5", "segmenter.merges=20"),
    "model.dim=16",
]


@pytest.fixture
def parent(data: Prepared, tmp_path: Path) -> Path:
    """A model directory to be spoiled."""
    settings = tiny.settings()
    model = build.transformer(settings, len(data.source.vocabulary), len(data.target.vocabulary))
    files = modeldir.parts(settings, model, data.source, data.target, {"longest_source": 9})
    manifest.write(tmp_path / "parent", files)
    return tmp_path / "parent"


def flipped(parent: Path) -> None:
    where = parent / "model.safetensors"
    content = bytearray(where.read_bytes())
    content[-5] ^= 1
    where.write_bytes(content)


def exported(parent: Path) -> None:
    files = {"config.json": b"{}", "settings.json": b"{}", "model.bin": b"\6"}
    for path in parent.iterdir():
        path.unlink()
    parent.rmdir()
    manifest.write(parent, files.items())


@pytest.mark.parametrize(
    ("spoil", "arguments", "code", "told"),
    [
        (flipped, [], Exit.DATA, "model.safetensors: damaged; SHA-256 is"),
        (lambda p: p.rename(p.parent / "moved"), [], Exit.NO_INPUT, "no such directory"),
        (lambda p: None, ["model.dim=32"], Exit.USAGE, "has 16, and its weights fit no other size"),
        (exported, [], Exit.DATA, "written by nmt-export for another engine"),
    ],
)
def test_a_parent_that_will_not_do_is_refused_before_any_text_is_prepared(
    spoil: Callable[[Path], object],
    arguments: list[str],
    code: Exit,
    told: str,
    parent: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(parent)
    key = "trainer.init_from" if arguments or code == Exit.DATA else "experiment=lengthen parent"
    places = [f"runs={tmp_path / 'runs'}", f"data.cache={tmp_path / 'cache'}", "trainer.device=cpu"]
    assert train([*f"{key}={parent}".split(), "data=toy", *places, *arguments]) == code
    *before, line = capsys.readouterr().err.rstrip("\n").split("\n")
    assert line.startswith("nmt: ") and told in line and len(line) < 400
    assert all(each.startswith("corpus: ") for each in before)
    assert not (tmp_path / "runs").exists()
    assert not [*tmp_path.glob("cache/toy-*")]  # lengthen looks at the test text, in cache/toy/


def test_what_ends_a_run_at_once_ends_several_before_the_first(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"runs={tmp_path / 'runs'}", f"data.cache={tmp_path / 'cache'}", "trainer.device=cpu"]
    files = ["data=files", "data.root=x", "data.test_source=gone", "data.test_target=gone"]
    for arguments, told in (
        (["trainer.callback=misspelt:f"], "trainer.callback=misspelt:f: ModuleNotFoundError"),
        (["experiment=lengthen", f"parent={parent}", *files], "gone: no such file"),
    ):
        assert train(["-m", "seed=1", *places, *arguments]) != Exit.DIVERGED
        assert told in capsys.readouterr().err
        assert not (tmp_path / "runs").exists() and not (tmp_path / "cache").exists()


def test_words_that_bleu_could_not_find_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(trg_lang: str, force: bool) -> None:
        raise RuntimeError(f"\nTokenization of {trg_lang} requires extra dependencies.\nPlease")

    monkeypatch.setattr("sacrebleu.BLEU", lacks)
    changes = {"trainer__dev_metric": "bleu", "decode__target_language": "kor_Hang"}
    with pytest.raises(UserError) as error:
        training.train(tiny.settings(**changes), tmp_path / "runs")
    assert "sacrebleu[ko]" in str(error.value)
    assert error.value.code == Exit.USAGE and not (tmp_path / "runs").exists()


def test_one_rank_of_each_machine_verifies_the_corpus(tmp_path: Path) -> None:
    settings = experiment_of([*SMALL, f"data.cache={tmp_path}"]).settings
    path = corpus.prepare(settings, tmp_path).path
    (store,) = path.glob("train*/source.ids")
    content = store.read_bytes()
    store.write_bytes(bytes([content[0] ^ 1]) + content[1:])

    class Rank(World):
        """One of eight on two machines, which is told where rank 0 has prepared the corpus."""

        def broadcast(self, compute: Any) -> Any:
            return path

        def barrier(self) -> None:
            pass

    def prepared(rank: int) -> Prepared:
        return training.prepare(settings, tmp_path, Rank(rank, size=8, local_rank=rank % 4))

    for rank in (0, 1, 5):  # rank 0 verifies what it has prepared, before it tells the others
        assert prepared(rank).path == path
    with pytest.raises(UserError, match="prepare the corpus again") as error:
        prepared(rank=4)
    assert error.value.code == Exit.DATA


def test_what_a_caller_has_set_is_no_obstacle_and_stays(tmp_path: Path) -> None:
    words = [*SMALL, "trainer.max_steps=1", "trainer.device=cpu", "trainer.threads=1"]
    places = [f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path / 'runs'}"]
    experiment = experiment_of([*words, *places])
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            assert training.train(experiment.settings, experiment.run).step == 1
            assert not torch.is_grad_enabled()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert training.train(experiment.settings, experiment.run).already_finished
