"""From a path to a model of another engine, compared with what that engine computes of it.

A path is a directory, a file, or a name on the Hugging Face hub.
"""

import logging
import re
import shutil
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange import argos, ctranslate2_read, marian_directory, proof, transformers_read
from nmt.exchange.interface import CTRANSLATE2, HUB, Imported
from nmt.foreign import (
    CONFIG,
    CTRANSLATE2_WEIGHTS,
    IMPORT,
    IMPORT_FILE,
    READABLE,
    model_type,
    recognise,
)
from nmt.system import manifest

HUB_FILES = (
    *("*config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"),
    *("*vocab*", "*.spm"),
    *("sentencepiece.bpe.model", "source.json", "target.json", "model*.safetensors*", "model.bin"),
)  # patterns of names; not what other frameworks read
OTHER_FILES = ("pytorch_model*.bin*", "*.npz", "*.yml")  # where there is none of those weights
HUB_NAME = re.compile(r"(https:/+huggingface\.co/)?([\w.-]+)/([\w.-]+)/?", re.A)
# in options that change what is computed, though CTranslate2's converter does not look at them
UNTOLD = ("parallel_residual", "shared_layer_norm", "multiquery", "num_kv", "sliding")

log = logging.getLogger(__name__)


def locate(path: Path) -> Path:
    """What may hold a model that `read` reads: the path, or what was downloaded by that name."""
    if not path.exists():
        path = _download(path)
    kind = recognise(path)
    if kind is not None and kind.advice not in (IMPORT, IMPORT_FILE):
        raise UserError(f"{path}: {kind.name}; {kind.advice}", Exit.DATA)
    if kind is not None and kind.advice == IMPORT_FILE and path.is_dir():
        raise UserError(f"{path}: holds {kind.name}; name the file itself", Exit.DATA)
    if not path.is_dir() and (kind is None or kind.advice == IMPORT):
        raise UserError(f"{path}: a file; give its directory, {path.parent}; {READABLE}", Exit.DATA)
    if kind is None and not (path / CONFIG).exists():
        raise UserError(f"{path}: holds no {CONFIG} and no known model; {READABLE}", Exit.DATA)
    return path


def _download(path: Path) -> Path:
    """The directory of a model called OWNER/NAME, in huggingface_hub's cache."""
    matched = HUB_NAME.fullmatch(str(path))  # in a path // is /
    if matched is None or Path(matched[2]).is_dir():
        raise UserError(f"{path}: no such directory; name the directory of a model", Exit.NO_INPUT)
    name = f"{matched[2]}/{matched[3]}"
    if HUB.is_missing():
        raise UserError(
            f"{path}: no such directory; if the Hugging Face hub has it, pip install "
            "'nmt-toolkit[hub]' and try again, or download it first: hf download "
            f"{name} --local-dir {matched[3]}, or git clone https://huggingface.co/{name}",
            Exit.NO_INPUT,
        )
    from huggingface_hub import snapshot_download

    log.info("downloading %s", name)
    try:
        directory = Path(snapshot_download(name, allow_patterns=[*HUB_FILES]))
        if not any([*directory.glob("model*.safetensors*"), *directory.glob("model.bin")]):
            patterns = [*HUB_FILES, *OTHER_FILES]
            directory = Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # of a network it raises what its own libraries do
        raise UserError(
            f"{name}: cannot be downloaded from the Hugging Face hub ({_reason(error)}); where "
            "there is a network, hf download or git clone makes a directory, which can be imported",
            Exit.UNAVAILABLE,
        ) from None
    return directory


def unpack(path: Path, directory: Path) -> Path:
    """The directory of a model; one made anew at `directory` where a path is a single file."""
    if path.is_dir():
        return path
    try:
        (argos.unpack if path.suffix == ".argosmodel" else _convert)(path, directory)
    except (UserError, OSError):
        raise
    except Exception as error:  # a damaged file makes these libraries raise whatever they come upon
        raise UserError(f"{path}: cannot be read ({_reason(error)})", Exit.DATA) from None
    return directory


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _convert(checkpoint: Path, directory: Path) -> None:
    """What CTranslate2 makes of one of OpenNMT-py, and the SentencePiece models next to it."""
    CTRANSLATE2.require(str(checkpoint))
    import torch
    from ctranslate2.converters import OpenNMTPyConverter

    with torch.serialization.safe_globals([Namespace]):  # no other code of a file is run
        held: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
        options = vars(held["opt"])
        for key, value in options.items():
            if value and any(word in key for word in UNTOLD):
                raise UserError(f"{checkpoint}: {key}={value} cannot be read", Exit.DATA)
        if options.get("self_attn_type") == "scaled-dot-flash":  # the same, only faster
            held["opt"].self_attn_type = "scaled-dot"
        held.pop("optim", None)
        plain = directory.with_suffix(".pt")
        torch.save(held, plain)
        OpenNMTPyConverter(str(plain)).convert(str(directory), quantization="float32")
    config = manifest.read(directory / CONFIG, None)
    config["layer_norm_epsilon"] = options.get("norm_eps", 1e-6)  # CTranslate2 takes 1e-5
    (directory / CONFIG).write_bytes(manifest.dump(config))
    for side in ("source", "target"):
        if (model := checkpoint.with_name(f"{side}.spm")).exists():
            shutil.copy(model, directory)


def read(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read the model of a directory, of whichever engine its files are.

    `trained_length`: pieces of the longest source in training; None: as nmt-export wrote it, or
    unknown. `languages`: of source and target, in models of many. A file that is missing, damaged,
    or says what cannot be expressed here is a UserError (65).
    """
    if model_type(directory) == "m2m_100":
        return transformers_read.m2m100(directory, trained_length, languages)
    if languages:
        raise UserError("--languages: only M2M100 and NLLB name them by pieces; leave it out")
    if (directory / CTRANSLATE2_WEIGHTS).is_file():
        return ctranslate2_read.read(directory, trained_length)
    if any(directory.glob("*.npz")):
        return marian_directory.read(directory, trained_length)
    return transformers_read.marian(directory, trained_length)


def certify(imported: Imported, lines: Sequence[str] | None = None) -> dict[str, Any]:
    """Compare an imported model with its engine; returns the certificate.

    On the lines, or made-up ones, and beyond the length of training, as `exporting.export` does.
    Where the engine is not installed, that is said, and nothing compared.
    """
    library = imported.library
    if library.is_missing():
        log.warning(
            "not compared with the original: %s is not installed (extra %s)",
            library.module, library.extra,
        )  # fmt: skip
        return {"compared_with": None}
    scorer = imported.scorer()
    certificate = proof.certify(proof.translate_samples(imported.trained, scorer, lines), scorer)
    proof.report(certificate)
    return certificate
