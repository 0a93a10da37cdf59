"""Checkpoints of OpenNMT-py and packages of Argos Translate, as directories of CTranslate2."""

import shutil
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange.adapter import CTRANSLATE2
from nmt.system import manifest

METADATA = "metadata.json"  # of a package: its languages
MOST_UNPACKED = 20  # times the size of a package: weights hardly become smaller
# in options that change what is computed, though CTranslate2's converter does not look at them
UNTOLD = ("parallel_residual", "shared_layer_norm", "multiquery", "num_kv", "sliding")


def unpack(path: Path, directory: Path) -> Path:
    """The directory of a model; one made anew at `directory` where a path is a single file.

    Raises UserError (65) for what cannot be read, 69 where CTranslate2 is not installed.
    """
    if path.is_dir():
        return path
    try:
        (_unzip if path.suffix == ".argosmodel" else _convert)(path, directory)
    except (UserError, OSError):
        raise
    except Exception as error:  # a damaged file makes these libraries raise whatever they come upon
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: cannot be read ({reason})", Exit.DATA) from None
    return directory


def _unzip(package: Path, directory: Path) -> None:
    """The model of a package, and its SentencePiece model for both sides."""
    directory.mkdir()
    with zipfile.ZipFile(package) as archive:
        if sum(m.file_size for m in archive.infolist()) > MOST_UNPACKED * package.stat().st_size:
            raise UserError(f"{package}: unpacks to more than a model", Exit.DATA)
        for name in archive.namelist():
            _, _, inside = name.partition("/")
            if (file := inside.removeprefix("model/")) and "/" not in file:
                (directory / file).write_bytes(archive.read(name))
    if not (model := directory / "sentencepiece.model").exists():
        raise UserError(f"{package}: holds no sentencepiece.model, as all do here", Exit.DATA)
    for side in ("source", "target"):
        shutil.copy(model, directory / f"{side}.spm")


def _convert(checkpoint: Path, directory: Path) -> None:
    """What CTranslate2's converter makes of it, and the SentencePiece models next to it."""
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
    config = manifest.read(directory / "config.json", None)
    config["layer_norm_epsilon"] = options.get("norm_eps", 1e-6)  # CTranslate2 takes 1e-5
    (directory / "config.json").write_bytes(manifest.dump(config))
    for side in ("source", "target"):
        if (model := checkpoint.with_name(f"{side}.spm")).exists():
            shutil.copy(model, directory)
