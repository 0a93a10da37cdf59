"""A model's export for CTranslate2, written once and kept beside its checkpoint: see --engine.

The name of an export holds all that it follows from. The directory may be removed at any time.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmt import __version__, modeldir
from nmt.config.settings import RESTRICTIONS, Decode
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_engine
from nmt.exchange.adapter import CTRANSLATE2
from nmt.exchange.ctranslate2_engine import BY_NMT, ExportedModel
from nmt.exchange.ctranslate2_names import LONGEST, Naming
from nmt.system import atomic
from nmt.system.resources import DeviceName

if TYPE_CHECKING:
    from nmt.modeldir import Trained

log = logging.getLogger(__name__)


def exported(
    model: Path, decode: Decode, device: DeviceName, read: Callable[[Path], "Trained"]
) -> ExportedModel:
    """The export of a run's or a model directory, for this search; made where there is none.

    `read` reads a checkpoint, where an export is made of it. Raises UserError for what CTranslate2
    cannot, or computes otherwise, and where nothing can be written (73).
    """
    refuse(decode, device)
    from ctranslate2 import __version__ as engine_version

    def of(checkpoint: Path) -> ExportedModel:
        digest = modeldir.open_model(checkpoint).digest
        key = (digest, decode.precision, engine_version, __version__)
        whole = checkpoint.resolve()  # "." has no name to put one beside
        place = whole.with_name(f"{whole.name}.{CTRANSLATE2.module}") / "-".join(key)
        if not place.is_dir():
            _export(lambda: read(checkpoint), place, decode.precision)
        return ctranslate2_engine.load(place)

    export = modeldir.reading(model, of)
    check_lengths(export.naming, decode)
    return export


def refuse(decode: Decode, device: DeviceName) -> None:
    """Raise UserError for a search that CTranslate2 cannot follow there with any model."""
    ctranslate2_engine.refuse(decode)
    if decode.mbr:
        raise UserError(
            f"decode.mbr={decode.mbr}: not with CTranslate2, because its beam holds other "
            f"candidates in the end; {BY_NMT}"
        )
    from ctranslate2 import get_supported_compute_types

    if decode.precision not in get_supported_compute_types(device.type, device.number or 0):
        raise UserError(
            f"decode.precision={decode.precision}: CTranslate2 does not compute in it on {device}; "
            f"{BY_NMT}"
        )


def _export(read: Callable[[], "Trained"], place: Path, precision: str) -> None:
    """Make an export unless another process has; UserError (73) where it cannot be written."""
    from nmt.exchange.exporting import export

    waiting = f"{place.parent}: another process is exporting the model; waiting"
    try:
        with atomic.hold_lock(place.with_name(".lock"), waiting):
            if place.is_dir():
                return
            trained = read()
            log.info("exporting the model to CTranslate2, once: %s", place)
            atomic.sweep(place.parent)
            # what the model's own settings restrict, and this search does not: else it was refused
            free = replace(trained.settings.decode, position_scale=1.0, **RESTRICTIONS)
            trained = trained._replace(settings=replace(trained.settings, decode=free))
            export(trained, place, precision=precision)
    except OSError as error:
        raise UserError(
            f"{place.parent}: the export for CTranslate2 cannot be written ({error.strerror}); "
            f"make room there, or {BY_NMT}",
            Exit.CANT_CREATE,
        ) from None


def check_lengths(naming: Naming, decode: Decode) -> None:
    """Refuse lengths for which nmt has positions, but the tables of an export have not."""
    longest = int(decode.max_length_ratio * decode.max_source) + decode.max_length_offset
    for key, most, table, language in (
        ("max_source", decode.max_source, naming.source_table, decode.source_language),
        ("max_length_ratio", longest, naming.target_table, decode.target_language),
    ):
        pieces = LONGEST - (language is not None) - 1  # eos, or bos, takes a position, too
        if table == LONGEST and most > pieces:
            raise UserError(
                f"decode.{key}={getattr(decode, key)}: not with CTranslate2, because its tables of "
                f"positions end at {pieces:,} pieces; {BY_NMT}"
            )
