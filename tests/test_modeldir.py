"""A model directory gives back what was trained, can be moved, and never runs code."""

import errno
import hashlib
import itertools
import json
import os
import pickle
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from nmt import build, modeldir
from nmt.config.data import TOY_KEYS
from nmt.config.settings import Settings, freeze
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.modeldir import WEIGHTS
from nmt.system import manifest
from tests.training import tiny
from tests.training.damage import DAMAGES, Damage


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return tiny.prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def original(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory; look, do not touch."""
    return written(tmp_path_factory.mktemp("model") / "model", data, tiny.settings())


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "model")


FACTS = {"step": 1, "longest_source": 9}


def written(path: Path, data: Prepared, settings: Settings) -> Path:
    torch.manual_seed(7)
    sizes = len(data.source.vocabulary), len(data.target.vocabulary)
    net = build.transformer(settings, *sizes)
    manifest.write(path, modeldir.parts(settings, net, data.source, data.target, FACTS))
    return path


def refused(path: Path, code: Exit, *said: str) -> None:
    with pytest.raises(UserError) as error:
        modeldir.load(path)
    assert error.value.code == code
    assert all(each in str(error.value) for each in said), str(error.value)
    assert "\n" not in str(error.value)


def resealed(path: Path, name: str, content: bytes) -> Path:
    """Replace a file and vouch for it: what a careful enemy would do."""
    files = {p.name: p.read_bytes() for p in path.iterdir() if p.name != manifest.NAME}
    shutil.rmtree(path)
    manifest.write(path, {**files, name: content}.items())
    return path


@pytest.mark.parametrize(
    ("tie", "encoding"), [("none", "lstm"), ("target", "relative"), ("all", "absolute")]
)
def test_what_was_saved_is_loaded(tie: str, encoding: str, data: Prepared, tmp_path: Path) -> None:
    settings = tiny.settings(model__tie=tie, encoding={encoding: {}})
    written(tmp_path / "here", data, settings)
    there = tmp_path / "elsewhere/model"
    there.parent.mkdir()
    (tmp_path / "here").rename(there)
    before = torch.get_rng_state()
    trained = modeldir.load(str(there))
    assert torch.equal(torch.get_rng_state(), before)  # a run may load while it trains
    assert trained.digest == hashlib.sha256((there / manifest.NAME).read_bytes()).hexdigest()
    torch.manual_seed(7)
    sizes = len(data.source.vocabulary), len(data.target.vocabulary)
    expected = build.transformer(settings, *sizes).state_dict()
    found = trained.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not trained.model.training and trained.facts == FACTS
    assert trained.source.to_json() == data.source.to_json()
    assert freeze(trained.settings)["model"] == freeze(settings)["model"]
    shared = trained.model.output.weight is trained.model.target_embedding.weight
    assert shared == (tie != "none")
    saved = safetensors.torch.load_file(there / WEIGHTS)
    assert ("output.weight" in saved) == (tie == "none")  # tied tensors are stored once
    assert ("target_embedding.weight" in saved) == (tie != "all")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
def test_shapes_are_compared_before_they_take_memory(original: Path, tmp_path: Path) -> None:
    hostile = []
    for key, value in (("dim", 8192), ("feedforward_dim", 10**7), ("k", 10**7)):
        plain = json.loads((original / "config.json").read_bytes())
        if key == "k":
            plain["encoding"] = {"deberta": {key: value}}
        else:
            plain["model"][key] = value
        other = shutil.copytree(original, tmp_path / key)
        hostile.append(resealed(other, "config.json", manifest.dump(plain)))
    for path in hostile:
        refused(path, Exit.DATA, WEIGHTS)  # here, so that all is imported
    if not (child := os.fork()):  # where the limit ends with the process
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000, -1))
        try:
            for path in hostile:
                refused(path, Exit.DATA, WEIGHTS)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_full_disk_is_an_error_of_the_system_and_leaves_nothing(
    original: Path, tmp_path: Path
) -> None:
    trained, before = modeldir.load(original), resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (original / WEIGHTS).stat().st_size  # of the largest file
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, before[1]))
    try:
        with pytest.raises(OSError) as error:
            modeldir.save(trained, tmp_path / "models/model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (error.value.errno, error.value.filename) == (
        errno.EFBIG,
        str(tmp_path / "models/model"),
    )
    assert not list((tmp_path / "models").iterdir())


def test_no_path_of_a_machine_is_inside(data: Prepared, tmp_path: Path) -> None:
    plain = {
        **freeze(tiny.settings())["data"],
        "kind": "files",
        "root": "/home/me/corpus",
        "cache": "/scratch/me",
        **{f"{p}_{s}": f"/home/me/corpus/{p}.{s}" for p in ("train", "dev") for s in SIDES},
        "test_source": "C:/me/test.de",
        "test_target": None,
        "columns": {
            "heads": {
                "per": "word",
                "train": "/home/me/corpus/train.heads",
                "dev": "/home/me/corpus/dev.heads",
                "test": None,
            }
        },
    }
    kept = {key: value for key, value in plain.items() if key not in TOY_KEYS}
    settings = tiny.settings(data=kept, trainer__init_from="/home/me/parent")
    path = written(tmp_path / "model", data, settings)
    for file in path.iterdir():
        assert b"/me" not in file.read_bytes() and str(tmp_path).encode() not in file.read_bytes()
    loaded = modeldir.load(path).settings.data
    assert (loaded.train_source, loaded.test_target) == ("train.source", None)


SIDES = ("source", "target")


FILES = [WEIGHTS, "config.json", "source.json", "target.json", "facts.json"]
KINDS = [*zip(DAMAGES, itertools.cycle(FILES)), *((damage, manifest.NAME) for damage in DAMAGES)]


@pytest.mark.parametrize(("damage", "name"), KINDS, ids=lambda d: getattr(d, "__name__", d))
def test_damage_is_found_and_named(damage: Damage, name: str, model: Path) -> None:
    damage(model / name)
    with pytest.raises(UserError) as error:
        modeldir.load(model)
    assert error.value.code == Exit.DATA
    assert name in str(error.value) or name == manifest.NAME


def test_what_is_no_model_directory(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", Exit.NO_INPUT, "no such directory")
    refused(tmp_path, Exit.DATA, "not a model directory")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    refused(tmp_path / "run", Exit.NO_INPUT, "no checkpoint yet")


class Bomb:
    """Leaves a mark when unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return exec, (f"open({str(MARK)!r}, 'w').close()",)


MARK = Path("/tmp/nmt-test-a-pickle-was-run")


def test_a_pickle_is_never_run(model: Path, tmp_path: Path) -> None:
    MARK.unlink(missing_ok=True)
    bomb = pickle.dumps(Bomb())
    (tmp_path / "model.pt").write_bytes(bomb)
    refused(tmp_path / "model.pt", Exit.DATA, "not a model directory", "never unpickles")
    for name in (WEIGHTS, "config.json", "source.json"):
        refused(resealed(model, name, bomb), Exit.DATA, name)
        shutil.rmtree(model)
        torch.manual_seed(7)
        written(model, tiny.prepared(tmp_path / name), tiny.settings())
    assert not MARK.exists()
    pickle.loads(bomb)  # it does go off
    assert MARK.exists()
    MARK.unlink()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000, "no valid JSON"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no valid JSON"),
        (b"\xff", "no valid JSON"),
        (b"[]", "expected a JSON object"),
        (b"{" + b" " * (1 << 20) + b"}", "at most 1048576 are accepted"),
        (b"{}", "data: has no value"),
    ],
)
def test_a_config_is_data_and_bounded(content: bytes, said: str, model: Path) -> None:
    refused(resealed(model, "config.json", content), Exit.DATA, "config.json", said)


def test_a_damaged_vocabulary_is_refused(model: Path) -> None:
    plain = json.loads((model / "source.json").read_bytes())
    for changed in ({}, {**plain, "vocabulary": [1, 2]}, {**plain, "segmenter": {"kind": "os"}}):
        refused(resealed(model, "source.json", manifest.dump(changed)), Exit.DATA, "source.json")


def test_weights_of_another_model_are_refused(model: Path, original: Path) -> None:
    tensors = safetensors.torch.load_file(original / WEIGHTS)
    name = next(n for n in tensors if n.startswith("encoder.layers.0."))
    less = {k: v for k, v in tensors.items() if k != name}
    for changed, said in (
        (less, f"the tensor {name} is missing"),
        ({**tensors, "extra": torch.zeros(1)}, "the tensor extra belongs to another model"),
        ({**tensors, "a\nb": torch.zeros(1)}, r"the tensor a\x0ab belongs to another model"),
        ({**less, name: torch.zeros(3, 5)}, f"{name} is [3, 5] torch.float32, its config asks"),
        ({**less, name: tensors[name].double()}, f"{name} is"),
    ):
        content = safetensors.torch.save(changed)
        refused(resealed(model, WEIGHTS, content), Exit.DATA, WEIGHTS, said)


def test_a_run_means_its_best_checkpoint(
    original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    for step in (1, 2, 10):
        shutil.copytree(original, run / f"checkpoints/step-{step:08d}")
    for pointer, expected in (
        (b"step-00000002\n", 2),
        (b"step-00000009\n", 10),  # a hint that is wrong: the newest
        (b"../../secret", 10),
        (b"\xff" * 1000, 10),
        (None, 10),
    ):
        if pointer is None:
            (run / "best").unlink()
        else:
            (run / "best").write_bytes(pointer)
        caplog.clear()
        assert modeldir.locate(run) == run / f"checkpoints/step-{expected:08d}"
        assert ("using the newest, step-00000010" in caplog.text) is (expected == 10)


def test_a_model_is_read_while_training_rotates_its_checkpoints(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best checkpoint is rotated away whenever one of the first four is read."""
    run, read = tmp_path / "run", Path.read_bytes

    def checkpoint(step: int) -> Path:
        path = run / f"checkpoints/step-{step:08d}"
        shutil.copytree(original, path)
        resealed(path, "facts.json", manifest.dump({**FACTS, "step": step}))
        (run / "best").write_bytes(f"{path.name}\n".encode())
        return path

    def rotated(path: Path) -> bytes:
        step = int(path.parent.name.partition("-")[2] or 9)
        if path.name == "facts.json" and step < 5:
            monkeypatch.setattr(Path, "read_bytes", read)
            checkpoint(step + 1)
            monkeypatch.setattr(Path, "read_bytes", rotated)
            shutil.rmtree(path.parent)
        return read(path)

    checkpoint(1)
    monkeypatch.setattr(Path, "read_bytes", rotated)
    assert modeldir.load(run).facts == {**FACTS, "step": 5}
    with pytest.raises(UserError, match="step-00000001"):  # which was named
        modeldir.load(run / "checkpoints/step-00000001")
