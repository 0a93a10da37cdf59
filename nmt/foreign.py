"""Models of other toolkits, recognised by their files, and what to do with them.

One table for every command. Nothing here reads weights; a config.json that cannot be read counts as
empty, since whatever loads the model reports the fault.
"""

import json
import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import Exit, UserError

CONFIG = "config.json"
CONFIG_LIMIT = 1 << 20  # bytes
CTRANSLATE2_WEIGHTS = "model.bin"
READABLE = (
    "nmt-import reads models of Marian (OPUS-MT), as .npz or of Hugging Face, M2M100 and NLLB of "
    "Hugging Face, and CTranslate2 in float32"
)
COMPARE = (
    f"{READABLE}; to compare this one, translate with its own toolkit, and give nmt-evaluate the "
    "translations"
)
IMPORT = "make a model directory of it first: nmt-import {path} MODEL"
_ON_HUB = re.compile(r"(https://huggingface\.co/)?([\w.-]+)/([\w.-]+)/?", re.A)


class ModelKind(NamedTuple):
    """One kind of model: signs of its directory, of which one is enough, and what to do."""

    name: str  # with an article
    advice: str  # {path} stands for its directory
    files: tuple[str, ...] = ()  # patterns of names
    keys: Collection[str] = ()  # of config.json: all of them
    model_type: str = ""  # in config.json of Hugging Face
    importable: bool = False


OWN = ModelKind(
    "a run or a model directory of nmt itself",
    "it needs no import: give it to nmt-translate, parent= or trainer.init_from= as it is",
    keys=("segmenter", "trainer", "decode"),
)
KINDS = (
    OWN,
    ModelKind("a model of CTranslate2", IMPORT, (CTRANSLATE2_WEIGHTS,), importable=True),
    ModelKind("a Marian model of Hugging Face", IMPORT, model_type="marian", importable=True),
    ModelKind("a model of Marian itself", IMPORT, ("*.npz",), importable=True),
    ModelKind(
        "an M2M100 or NLLB model of Hugging Face", IMPORT, model_type="m2m_100", importable=True
    ),
    ModelKind(
        "a model of Marian that is packed into 8 bits",
        "take the model.npz that it was made of, or that of its teacher",
        ("*intgemm*.bin",),
    ),
    ModelKind(
        "a model of OpenNMT-tf",
        "convert it by ct2-opennmt-tf-converter of ctranslate2, put source.spm and target.spm of "
        "SentencePiece next to the result, and import that",
        ("*ckpt-*.index",),
    ),
    ModelKind(
        "a model of OpenNMT-py",
        "convert it by ct2-opennmt-py-converter --model_path FILE.pt --output_dir DIR of "
        "ctranslate2, put source.spm and target.spm of SentencePiece into DIR, and import DIR",
        ("*_step_*.pt",),
    ),
    ModelKind(
        "weights of another toolkit",
        COMPARE,
        ("*.pt", "*.pth", "*.ckpt", "params.best", "params.[0-9]*", "model.[0-9]*.safetensors"),
    ),
)


def recognised(path: Path) -> ModelKind | None:
    """The kind of model in a directory, or of a checkpoint file; None: nothing that is known."""
    if path.is_file():
        names, config = [path.name], {}
    else:
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
        config = _config(path / CONFIG)
    model_type = str(config.get("model_type", ""))
    for kind in KINDS:
        if (
            any(fnmatchcase(name, pattern) for name in names for pattern in kind.files)
            or (kind.keys and set(kind.keys) <= config.keys())
            or (kind.model_type and kind.model_type == model_type)
        ):
            return kind
    if model_type:
        return ModelKind(f"a model of Hugging Face of the type {model_type[:40]}", COMPARE)
    return None


def model_type(path: Path) -> str:
    """That of a directory of Hugging Face; "": none."""
    return str(_config(path / CONFIG).get("model_type", ""))


def _config(where: Path) -> dict[str, Any]:
    try:
        if where.stat().st_size > CONFIG_LIMIT:
            return {}
        values = json.loads(where.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def refuse_unreadable(path: Path) -> None:
    """Raise UserError unless a path may hold what nmt-import reads.

    66 where nothing is, with the command that downloads it where it has the form of a name on the
    Hugging Face hub; 65 for a file, and for a directory of another toolkit.
    """
    if not path.exists():
        raise UserError(f"{path}: no such directory; {_where_from(path)}", Exit.NO_INPUT)
    if not path.is_dir() and (kind := recognised(path.parent)) and kind.importable:
        raise UserError(f"{path}: a file; give its directory, {path.parent}", Exit.DATA)
    kind = recognised(path)
    if kind is not None and not kind.importable:
        raise UserError(f"{path}: {kind.name}; {kind.advice.format(path=path)}", Exit.DATA)
    if not path.is_dir():
        raise UserError(f"{path}: a file; give a directory. {READABLE}", Exit.DATA)
    if kind is None and not (path / CONFIG).exists():
        raise UserError(f"{path}: holds no {CONFIG} and no known model; {READABLE}", Exit.DATA)


def refuse_foreign(path: Path) -> None:
    """Raise UserError (65) for another toolkit's model in place of a model directory of nmt."""
    kind = recognised(path)
    if kind is not None and kind is not OWN:
        advice = kind.advice.format(path=path)
        raise UserError(f"{path}: {kind.name}, no model directory of nmt; {advice}", Exit.DATA)


def _where_from(path: Path) -> str:
    """Where a missing model may be found."""
    if (name := name_on_hub(path)) is None:
        return "name the directory of a model"
    folder = name.rpartition("/")[2]
    return (
        "if that is a model of the Hugging Face hub, pip install 'nmt-toolkit[hub]' and try again, "
        f"or download it first: hf download {name} --local-dir {folder}, or "
        f"git clone https://huggingface.co/{name}"
    )


def name_on_hub(path: Path) -> str | None:
    """OWNER/NAME, where a missing path may be one on the Hugging Face hub; else None."""
    name = _ON_HUB.fullmatch(str(path).replace("https:/huggingface", "https://huggingface"))
    if name is None or path.exists() or Path(name[2]).is_dir():
        return None
    return f"{name[2]}/{name[3]}"
