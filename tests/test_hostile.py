"""Model directories of others, vouched for by their own manifests, that mean harm or nonsense."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate
from nmt.system import manifest
from tests.test_modeldir import data, original, resealed  # noqa: F401  (fixtures)

Change = Callable[[dict[str, Any]], Any]
SECONDS = 10  # to refuse; a million layers took minutes


def setting(*keys: str, value: object) -> Change:
    """Set a value of a JSON object below several keys."""

    def change(plain: dict[str, Any]) -> None:
        for key in keys[:-1]:
            plain = plain[key]
        plain[keys[-1]] = value

    return change


ESCAPES = "\x1b[2J\x1b]0;mine\x07\r\nERROR\u202e" * 100
HOSTILE: dict[str, tuple[str, Change, str]] = {
    "text of the environment, in a list": (
        *("config.json", setting("model", "drop_residual", value=["${oc.env:SECRET}"])),
        "interpolation is not allowed",
    ),
    "text of the environment, as a key": (
        *("config.json", setting("encoding", "${oc.env:SECRET}", value={})),
        "interpolation is not allowed",
    ),
    "the name of code": (
        *("config.json", setting("model", "_target_", value="torch.hub.load")),
        "model._target_: no such key",
    ),
    "a window beyond all bounds": ("config.json", setting("decode", "window", value=1e30), ""),
    "a million layers": (*("config.json", setting("model", "encoder_layers", value=1_000_000)), ""),
    "a width that no tensor has": (
        *("config.json", setting("model", "dim", value=2**30)),
        "model.safetensors",
    ),
    "other layers than the tensors": (
        *("config.json", setting("model", "encoder_layers", value=7)),
        "model.safetensors",
    ),
    "a table that no tensor holds": (
        *("config.json", setting("encoding", value={"learned": {"size": 2**30}})),
        "",
    ),
    "an option of an encoding that is none": (
        *("config.json", setting("encoding", value={"relative": {"tau": {"a": [1]}}})),
        "",
    ),
    "an encoding with the name of code": (
        *("config.json", setting("encoding", value={"os.system": {}})),
        "os.system",
    ),
    "no facts": ("facts.json", lambda plain: plain.clear(), "longest_source"),
    "facts of another kind": (
        *("facts.json", setting("longest_source", value=[ESCAPES])),
        "longest_source",
    ),
    "a vocabulary that moves the cursor": (
        *("target.json", setting("vocabulary", value=[*"abcdefgh", "\x1b[2J"])),
        "target.json",
    ),
    "a key that moves the cursor": ("config.json", setting(ESCAPES, value=1), ""),
    "a kind that moves the cursor": (
        *("config.json", setting("segmenter", "kind", value=ESCAPES)),
        "segmenter.kind",
    ),
    "an encoding outside": (
        *("config.json", setting("encoding", value={"x": {"use": "../../secret"}})),
        "",
    ),
    "another writer": (
        *("manifest.json", lambda plain: plain.update(nmt=ESCAPES, format_version=ESCAPES)),
        "written by nmt",
    ),
    "sizes that are none": (
        *("manifest.json", setting("files", "facts.json", "bytes", value=[ESCAPES])),
        "facts.json",
    ),
}


@pytest.fixture
def package(original: Path, tmp_path: Path) -> Path:  # noqa: F811
    path = shutil.copytree(original, tmp_path / "package")
    facts = json.loads((path / "facts.json").read_bytes())
    return resealed(path, "facts.json", manifest.dump({**facts, "longest_source": 9}))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_package_gets_one_line(
    case: str,
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, change, said = HOSTILE[case]
    plain = json.loads((package / name).read_bytes())
    change(plain)
    if name == manifest.NAME:
        (package / name).write_bytes(manifest.dump(plain))
    else:
        resealed(package, name, manifest.dump(plain))
    monkeypatch.setenv("SECRET", "very secret")
    (tmp_path / "in.txt").write_bytes(b"a b\n")
    began = time.process_time()
    assert translate.main([str(package), str(tmp_path / "in.txt")]) == 65
    assert time.process_time() - began < SECONDS
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"nmt: {package}") and err.count("\n") == 1
    assert said in err and "very secret" not in err and "Traceback" not in err
    assert re.fullmatch(r"[^\x00-\x1f\x7f-\x9f\u202e]*\n", err) and len(err) < 2000


def test_the_package_itself_is_sound(package: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"\n")
    assert translate.main([str(package), str(tmp_path / "in.txt")]) == 0
