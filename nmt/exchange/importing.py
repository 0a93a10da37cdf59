"""Import a model of another engine, and compare it with what that engine computes."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt import foreign
from nmt.config.check import NonNegativeInt, fit
from nmt.errors import Exit, UserError
from nmt.exchange import (
    argos,
    ctranslate2_read,
    marian_directory,
    model_card,
    proof,
    transformers_read,
)
from nmt.exchange.interface import CERTIFICATE, Imported, invalid
from nmt.modeldir import in_file
from nmt.system import manifest

# OWNER/NAME, or its address, in which a path has one slash for two
HUB_NAME = re.compile(r"(https:/+huggingface\.co/)?([\w.-]+/([\w.-]+))/?", re.A)

log = logging.getLogger(__name__)


def check(path: Path) -> None:
    """Raise UserError for a path that holds no model that `read` reads."""
    if not path.exists():
        advice, name = "name the directory of a model", HUB_NAME.fullmatch(str(path))
        if name is not None and not Path(name[2]).parent.is_dir():
            advice = f"if the Hugging Face hub has it: hf download {name[2]} --local-dir {name[3]}"
        raise UserError(f"{path}: no such directory; {advice}", Exit.NO_INPUT)
    kind = foreign.recognise(path)
    if kind is not None and kind.advice not in (foreign.IMPORT, foreign.IMPORT_FILE):
        raise invalid(path, f"{kind.name}; {kind.advice}")
    if kind is not None and kind.advice == foreign.IMPORT_FILE and path.is_dir():
        raise invalid(path, f"holds {kind.name}; name the file itself")
    if not path.is_dir() and (kind is None or kind.advice == foreign.IMPORT):
        raise invalid(path, f"a file; give its directory, {path.parent}; {foreign.READABLE}")
    if kind is None and not (path / foreign.CONFIG).exists():
        raise invalid(path, f"holds no {foreign.CONFIG} and no known model; {foreign.READABLE}")


def unpack(path: Path, directory: Path) -> Path:
    """The directory of a model; that of a package is made at `directory`."""
    if path.is_dir():
        return path
    try:
        argos.unpack(path, directory)
    except (UserError, OSError):
        raise
    except Exception as error:  # a damaged file makes a library raise whatever it comes upon
        reason = " ".join(str(error).split())[:200]
        raise invalid(path, f"cannot be read ({reason})") from None
    return directory


def read(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read the model of a directory of any engine.

    `trained_length`: pieces of the longest source in training; None: as the certificate of an
    nmt-export says, or unknown. `languages`: of source and target, in models of many. Raises
    UserError (65) for a file that is missing, damaged, or asks for what nmt does not compute.
    """
    if trained_length is None and (certificate := directory / CERTIFICATE).exists():
        stated = manifest.read(certificate).get("longest_trained_source")
        with in_file(certificate):
            trained_length = fit(NonNegativeInt | None, stated, "longest_trained_source")
    if languages and foreign.model_type(directory) != "m2m_100":
        raise UserError("--languages: only M2M100 and NLLB name them by pieces; leave it out")
    if (directory / foreign.CTRANSLATE2_WEIGHTS).is_file():
        return ctranslate2_read.read(directory, trained_length)
    if any(directory.glob("*.npz")):
        return marian_directory.read(directory, trained_length)
    return transformers_read.read(directory, trained_length, languages)


def certify(imported: Imported, lines: Sequence[str] | None = None) -> dict[str, Any]:
    """Compare an imported model with its engine, as `exporting.export` does; the certificate.

    If the engine is not installed, a warning says so, and nothing is compared.
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
    model_card.report(certificate)
    return certificate
