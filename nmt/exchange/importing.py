"""From the files of another engine to a model, compared with what that engine computes of them."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_read, hub, marian_npz_read, proof, transformers_read
from nmt.exchange.adapter import Imported
from nmt.foreign import (
    CONFIG,
    CTRANSLATE2_WEIGHTS,
    IMPORT,
    IMPORT_FILE,
    READABLE,
    model_type,
    recognise,
)

log = logging.getLogger(__name__)


def refuse_unreadable(path: Path) -> None:
    """Raise UserError unless a path may hold what `read` reads.

    66 where nothing is, with the command that downloads it where it has the form of a name on the
    Hugging Face hub; 65 for a file, and for a directory of another toolkit.
    """
    if not path.exists():
        where = "name the directory of a model"
        if name := hub.name_of(path):
            where = (
                "if the Hugging Face hub has it, pip install 'nmt-toolkit[hub]' and try again, or "
                f"download it first: hf download {name} --local-dir {name.rpartition('/')[2]}, or "
                f"git clone https://huggingface.co/{name}"
            )
        raise UserError(f"{path}: no such directory; {where}", Exit.NO_INPUT)
    kind = recognise(path)
    if kind is not None and kind.advice not in (IMPORT, IMPORT_FILE):
        raise UserError(f"{path}: {kind.name}; {kind.advice}", Exit.DATA)
    if kind is not None and kind.advice == IMPORT_FILE and path.is_dir():
        raise UserError(f"{path}: holds {kind.name}; name the file itself", Exit.DATA)
    if not path.is_dir() and (kind is None or kind.advice == IMPORT):
        raise UserError(f"{path}: a file; give its directory, {path.parent}; {READABLE}", Exit.DATA)
    if kind is None and not (path / CONFIG).exists():
        raise UserError(f"{path}: holds no {CONFIG} and no known model; {READABLE}", Exit.DATA)


def read(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read the model of a directory, of whichever engine its files are.

    `trained_length`: pieces of the longest source in training; None: as nmt-export wrote it, or
    unknown. `languages`: of source and target, in models of many. Raises UserError (65) for a file
    that is missing, damaged, or says what cannot be expressed here.
    """
    if model_type(directory) == "m2m_100":
        return transformers_read.m2m100(directory, trained_length, languages)
    if languages:
        raise UserError("--languages: only M2M100 and NLLB name them by pieces; leave it out")
    if (directory / CTRANSLATE2_WEIGHTS).is_file():
        return ctranslate2_read.read(directory, trained_length)
    if any(directory.glob("*.npz")):
        return marian_npz_read.read(directory, trained_length)
    return transformers_read.marian(directory, trained_length)


def certify(imported: Imported, lines: Sequence[str] | None = None) -> dict[str, Any]:
    """Compare an imported model with its engine; returns the certificate.

    On the lines, or made-up ones, and beyond the length of training, as `exporting.export` does.
    Where the engine is not installed, that is said, and nothing compared. Raises UserError (65)
    where anything differs.
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
