"""Recognise models of other toolkits on disk, and say what to do with them."""

import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import UserError, visible
from nmt.system import manifest

CONFIG = "config.json"


class ModelKind(NamedTuple):
    """One kind of model on disk."""

    name: str  # with an article
    advice: str  # {path} stands for its directory
    signs: tuple[str, ...] = ()  # patterns of file names, or model_type=...; one is enough


READABLE = (
    "nmt-import reads models of Marian (OPUS-MT), as .npz or of Hugging Face, M2M100 and NLLB of "
    "Hugging Face, CTranslate2 and Argos Translate"
)
COMPARE = (
    f"{READABLE}; to compare this one, translate with its own toolkit, and give nmt-evaluate the "
    "translations"
)
IMPORT = "make a model directory of it first: nmt-import {path} MODEL"
IMPORT_FILE = "make a model directory of it first: nmt-import FILE MODEL"
CONVERT = (
    "where that toolkit is installed, convert it by CTranslate2's {}; put source.spm and "
    "target.spm of SentencePiece into the result, and import that"
)
CTRANSLATE2_WEIGHTS = "model.bin"
OWN = ModelKind(
    "a run or a model directory of nmt itself",
    "it needs no import: give it to nmt-translate, parent= or trainer.init_from= as it is",
)
CONVERTERS = {  # toolkit -> CTranslate2's converter of its models, and patterns of their files
    "OpenNMT-py": ("ct2-opennmt-py-converter --unsafe_deserialization", "*_step_*.pt"),
    "OpenNMT-tf": ("ct2-opennmt-tf-converter", "*ckpt-*.index"),
    "Eole": ("python -m ctranslate2.converters.eole_ct2", "model.[0-9]*.safetensors"),
    "fairseq": ("ct2-fairseq-converter", "checkpoint_*.pt", "checkpoint[0-9]*.pt", "dict.*.txt"),
}
KINDS = (
    ModelKind("a model of CTranslate2", IMPORT, (CTRANSLATE2_WEIGHTS,)),
    ModelKind("a Marian model of Hugging Face", IMPORT, ("model_type=marian",)),
    ModelKind("a model of Marian itself", IMPORT, ("*.npz",)),
    ModelKind("an M2M100 or NLLB model of Hugging Face", IMPORT, ("model_type=m2m_100",)),
    ModelKind(
        "a model of Marian that is packed into 8 bits",
        "take the model.npz that it was packed from, or that of its teacher",
        ("*intgemm*.bin",),
    ),
    ModelKind("a package of Argos Translate", IMPORT_FILE, ("*.argosmodel",)),
    *(
        ModelKind(f"a model of {toolkit}", CONVERT.format(converter), tuple(signs))
        for toolkit, (converter, *signs) in CONVERTERS.items()
    ),
    ModelKind(
        "weights of another toolkit",
        COMPARE,
        ("*.pt", "*.pth", "*.ckpt", "params.best", "params.[0-9]*"),
    ),
)


def recognise(path: Path) -> ModelKind | None:
    """The kind of a directory or checkpoint file; None: unknown."""
    if {"segmenter", "trainer", "decode"} <= _config(path).keys():
        return OWN
    huggingface = model_type(path)
    files = path.iterdir() if path.is_dir() else [path]
    signs = [f"model_type={huggingface}", *(file.name for file in files)]
    for model_kind in KINDS:
        if any(fnmatch.filter(signs, pattern) for pattern in model_kind.signs):
            return model_kind
    name = f"a model of Hugging Face of the type {visible(huggingface, 40)}"
    return ModelKind(name, COMPARE) if huggingface else None


def model_type(path: Path) -> str:
    """The model_type of a directory of Hugging Face; "": it has none."""
    return str(_config(path).get("model_type", ""))


def _config(directory: Path) -> dict[str, Any]:
    """Its config.json; empty if it cannot be read, which loading the model reports."""
    try:
        return manifest.read(directory / CONFIG)
    except UserError:
        return {}
