"""A damaged record of a run costs a line on stderr; a damaged config or checkpoint is refused."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from nmt.cli import evaluate, train
from nmt.errors import Exit
from nmt.training.reports import cut_back, read_metrics
from tests.training import tiny
from tests.training.damage import Damage, hole

TINY = [
    *("experiment=compare", "model.dim=16", "model.feedforward_dim=16", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "trainer.batch_tokens=100"),
    *("data.train_pairs=60", "data.train_longest=9", "data.dev_pairs=10", "data.test_pairs=20"),
    *("data.test_longest=12", "decode.max_length_ratio=0.5", "decode.max_length_offset=2"),
    *("trainer.log_every=1", "trainer.checkpoints_per_epoch=4", "trainer.keep_checkpoints=2"),
]


class Trained(NamedTuple):
    """A run of four updates, the weights that six updates give, and its test set."""

    run: Path
    arguments: list[str]
    sixth: str  # SHA-256
    test: list[str]

    def train(self, runs: Path, steps: int, *more: str) -> int:
        """Make updates of the run in `runs`, up to so many in all."""
        more = (f"runs={runs}", "name=run", f"trainer.max_steps={steps}", *more)
        return train.main([*self.arguments, *more])


def weights(run: Path, step: int) -> str:
    return tiny.digest(run / f"checkpoints/step-{step:08d}/model.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = tmp_path_factory.mktemp("damaged")
    four = Trained(root / "run", [*TINY, f"data.cache={root / 'cache'}"], "", [])
    assert four.train(root / "other", 6) == 0 and four.train(root, 4) == 0
    (text,) = (root / "cache" / "toy").glob("de-en*[0-9]")
    test = ["--test", f"toy={text / 'test.de'},{text / 'test.en'}", "--device", "cpu"]
    test += ["--samples", "40"]
    assert evaluate.main([str(four.run), *test]) == 0  # keeps the translations
    return four._replace(sixth=weights(root / "other/run", 6), test=test)


@pytest.fixture
def copy(trained: Trained, tmp_path: Path) -> Path:
    shutil.copytree(trained.run, tmp_path / "run")
    return tmp_path / "run"


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe precious \x00 {\n")


def dangling(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("no/such/place")


def number_for_a_group(path: Path) -> None:
    path.write_bytes(b'{"seed": 1, "data": 3}')


def second_line(line: bytes) -> Damage:
    """Replace the second line, which is of step 2 or earlier."""

    def damage(path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        lines[1] = line
        path.write_bytes(b"\n".join(lines))

    return damage


LINES = {  # of metrics.jsonl: a line that cannot be read
    "garbage": second_line(b"\x1b[2J not json"),
    "NULs": hole,
    "no keys": second_line(b"{}"),
    "brackets without end": second_line(b"[" * 100_000),
}
TRUTH: dict[str, tuple[str, Damage]] = {
    "config.json, garbage": ("config.json", garbage),
    "config.json, a number for a group": ("config.json", number_for_a_group),
    "checkpoints, a dangling link": ("checkpoints", dangling),
}


def lines_of(err: str, path: Path) -> list[str]:
    """The lines about a file or directory, or what lies in it, but for that of each start."""
    lines = [line for line in err.split("\n") if line.startswith((f"{path}:", f"{path}/"))]
    return [line for line in lines if not line.startswith(f"{path}: training ")]


def steps(run: Path) -> list[int]:
    lines = read_metrics(run / "metrics.jsonl")
    return [line["step"] for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize("kind", LINES)
def test_lines_that_cannot_be_read_are_skipped_and_stay(
    kind: str, trained: Trained, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    shutil.copy(trained.run / path.name, path)
    whole = read_metrics(path)
    LINES[kind](path)
    damaged, left = path.read_bytes(), read_metrics(path)
    assert left == [line for line in whole if line in left]
    assert len(left) == len(whole) - 1 or kind == "NULs"
    cut_back(path, 4)
    assert path.read_bytes() == damaged


def test_a_damaged_checkpoint_costs_a_line_and_training_goes_on(
    trained: Trained, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = copy / "checkpoints/step-00000004/model.safetensors"
    hole(damaged)
    assert trained.train(copy.parent, 6) == 0
    err = capsys.readouterr().err
    (line,) = lines_of(err, copy)
    assert line.startswith(str(damaged)) and "Traceback" not in err
    assert weights(copy, 6) == trained.sixth
    assert steps(copy)[-2:] == [5, 6]
    assert trained.train(copy.parent, 6) == 0
    err = capsys.readouterr().err
    assert "already finished" in err and not lines_of(err, copy), err


@pytest.mark.parametrize("kind", TRUTH)
def test_where_the_truth_is_damaged_nothing_is_trained_or_changed(
    kind: str, trained: Trained, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, damage = TRUTH[kind]
    damage(copy / name)
    before = tiny.tree(copy), (copy / name).is_symlink()
    for code in (trained.train(copy.parent, 6), evaluate.main([str(copy), *trained.test])):
        assert code == Exit.DATA
    err = capsys.readouterr().err
    assert err.count("\n") == 2 and all(
        line.startswith(f"nmt: {copy}") for line in err.split("\n")[:-1]
    ), err
    assert (tiny.tree(copy), (copy / name).is_symlink()) == before


def test_a_run_is_evaluated_by_the_search_settings_of_its_checkpoint_and_no_other_model(
    trained: Trained, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As nmt-translate does; these in config.json may be damaged and nobody would notice."""
    assert evaluate.main([str(copy), *trained.test]) == 0
    whole, _ = capsys.readouterr()
    change_config(copy, "decode", "max_length_offset", 9)
    assert evaluate.main([str(copy), *trained.test]) == 0
    assert capsys.readouterr().out == whole
    change_config(copy, "model", "dim", 17)
    assert evaluate.main([str(copy), *trained.test]) == Exit.DATA
    assert capsys.readouterr().err.startswith(f"nmt: {copy / 'config.json'}: ")


def change_config(run: Path, group: str, key: str, value: object) -> None:
    config = json.loads((run / "config.json").read_bytes())
    config[group][key] = value
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
