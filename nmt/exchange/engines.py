"""Models that translate, one or several, and the engine that searches in them.

CTranslate2 searches in a model's export, which is written once and kept beside its checkpoint: see
--engine. The name of an export holds all that it follows from. The directory may be removed at any
time.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import __version__, modeldir
from nmt.config.settings import RESTRICTIONS, Decode, with_decode
from nmt.decode.sources import TextSides
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_engine
from nmt.exchange.ctranslate2_engine import BY_NMT, CTranslate2Engine, ExportedModel
from nmt.exchange.ctranslate2_names import LONGEST, Naming
from nmt.exchange.interface import CTRANSLATE2
from nmt.system import atomic
from nmt.system.resources import DeviceName

if TYPE_CHECKING:
    from nmt.modeldir import Trained

ENGINES = ("nmt", "ctranslate2", "auto")
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, of AMD, of either below Windows

log = logging.getLogger(__name__)


class LoadedModels(NamedTuple):
    """One model, or several that decide together."""

    sides: TextSides
    models: "list[Trained]"  # those of this toolkit; none where CTranslate2 translates
    digests: list[str]  # of each: what vouches for its files
    device: str  # cpu or cuda
    translator: Callable[[Decode], Translator]  # UserError for settings that it cannot follow


def load(
    paths: Sequence[str | Path],
    device: str = "auto",
    threads: int | None = None,
    workers: int | None = 1,
    engine: str | None = None,
    changes: Mapping[str, Any] | None = None,
    needs: Sequence[str] = (),
) -> LoadedModels:
    """Read run or model directories, or one that nmt-export wrote for CTranslate2.

    `threads` are those of the whole process. Torch is imported, and set up, for models of this
    toolkit alone. `workers`: processes that search, or threads of CTranslate2; None: as many as pay
    for the text. `engine` is one of ENGINES; None: nmt, or CTranslate2 for what was exported. What
    is asked of it are `changes` of decode, and `needs`, names of what CTranslate2 cannot do.
    """
    exports = [path for path in paths if ctranslate2_engine.is_exported(Path(path))]
    if exports and engine == "nmt":
        raise UserError(f"{exports[0]}: holds a model for CTranslate2; {BY_NMT}")

    def find(place: DeviceName) -> ExportedModel:
        if exports:
            return ctranslate2_engine.load(Path(exports[0]))
        decode = with_decode(modeldir.read_settings(paths[0]), changes or {}).decode
        return find_export(Path(paths[0]), decode, place, partial(_read, threads=threads))

    engine = "ctranslate2" if exports else engine or "nmt"
    if found := _by_ctranslate2(engine, device, len(paths) > 1, needs, find):
        model, place = found
        threads = threads if workers in (None, 1) else workers

        def searching(decode: Decode) -> Translator:
            by_ctranslate2 = CTranslate2Engine(model, decode, place, threads)
            return Translator(model, decode, by_ctranslate2, workers)

        return LoadedModels(model, [], [model.digest], place.type, searching)
    models = [_read(path, device, threads) for path in paths]
    trained, *members = models
    return LoadedModels(
        trained,
        models,
        [member.digest for member in models],
        next(trained.model.parameters()).device.type,
        lambda decode: Translator.of(trained, decode, *members, workers=workers),
    )


def _read(path: str | Path, device: str = "cpu", threads: int | None = None) -> "Trained":
    from nmt.system.device import pick, set_up

    set_up(pick(device), threads=threads)
    return modeldir.load(path, device)


def translator(
    members: Sequence["Trained"],
    decode: Decode,
    workers: int | None = 1,
    engine: str = "nmt",
    needs: Sequence[str] = (),
) -> Translator:
    """That of models in memory; see `load`."""
    from nmt.system.device import usable_threads

    first, *others = members

    def find(place: DeviceName) -> ExportedModel:
        if first.directory is None or not modeldir.is_saved(first):
            raise UserError(f"model: is not what a directory holds; save it, load it, or {BY_NMT}")
        return find_export(first.directory, decode, place, modeldir.load)

    device = str(next(first.model.parameters()).device)
    if found := _by_ctranslate2(engine, device, bool(others), needs, find):
        searching = CTranslate2Engine(found[0], decode, found[1], usable_threads())
        return Translator(first, decode, searching, workers)
    return Translator.of(first, decode, *others, workers=workers)


def _by_ctranslate2(
    engine: str,
    device: str,
    has_others: bool,
    needs: Sequence[str],
    find: Callable[[DeviceName], ExportedModel],
) -> tuple[ExportedModel, DeviceName] | None:
    """The export in which CTranslate2 searches, and where; None where nmt does.

    Raises UserError for what CTranslate2 cannot, which `auto` logs instead.
    """
    if engine not in ENGINES:
        raise UserError(f"engine={engine}: choose among {', '.join(ENGINES)}")
    if engine == "nmt":
        return None
    try:
        CTRANSLATE2.require(f"engine={engine}")
        if has_others:
            raise UserError(f"several models: CTranslate2 searches with one model; {BY_NMT}")
        if needs:
            raise UserError(f"{needs[0]}: not with CTranslate2; {BY_NMT}")
        if engine == "auto" and not is_cpu(device):
            raise UserError(f"device={device}: not a CPU; choose device=cpu, or engine=ctranslate2")
        place = DeviceName("cpu") if engine == "auto" else ctranslate2_engine.pick(device)
        export = find(place)
    except UserError as error:
        if engine != "auto":
            raise
        reason, _, _ = str(error).rpartition("; ")
        log.info("nmt translates, not CTranslate2: %s", reason or error)
        return None
    log.info("CTranslate2 translates: %s", export.directory)
    return export, place


def advise_ctranslate2(loaded: LoadedModels, decode: Decode) -> None:
    """Say that CTranslate2 could have searched, where models of this toolkit did on a CPU."""
    if len(loaded.models) != 1 or loaded.device != "cpu" or CTRANSLATE2.is_missing():
        return
    from nmt.exchange import ctranslate2_write

    try:
        _refuse_search(decode, DeviceName("cpu"))
        _refuse_lengths(ctranslate2_write.fit(loaded.models[0])[0], decode)
    except UserError:
        return
    log.info("next time, --engine auto lets CTranslate2 search, mostly in less time")


def is_cpu(name: str) -> bool:
    """Whether torch would compute on the CPU; it is asked only where a GPU may be meant."""
    if name == "cpu" or (name == "auto" and not any(Path(driver).exists() for driver in GPUS)):
        return True
    from nmt.system.device import pick

    return pick(name).type == "cpu"


def find_export(
    model: Path, decode: Decode, device: DeviceName, read: Callable[[Path], "Trained"]
) -> ExportedModel:
    """The export of a run's or a model directory, for this search; made where there is none.

    `read` reads a checkpoint, where an export is made of it.
    """
    _refuse_search(decode, device)
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
    _refuse_lengths(export.naming, decode)
    return export


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


def _refuse_search(decode: Decode, device: DeviceName) -> None:
    ctranslate2_engine.refuse(decode)
    from ctranslate2 import get_supported_compute_types

    if decode.mbr:
        why = "not with CTranslate2, because its beam holds other candidates in the end"
        raise UserError(f"decode.mbr={decode.mbr}: {why}; {BY_NMT}")
    if decode.precision not in get_supported_compute_types(device.type, device.number or 0):
        why = f"CTranslate2 does not compute in it on {device}"
        raise UserError(f"decode.precision={decode.precision}: {why}; {BY_NMT}")


def _refuse_lengths(naming: Naming, decode: Decode) -> None:
    """Refuse lengths for which nmt has positions, but the tables of an export have not."""
    longest = int(decode.max_length_ratio * decode.max_source) + decode.max_length_offset
    for key, most, table, language in (
        ("max_source", decode.max_source, naming.source.table, decode.source_language),
        ("max_length_ratio", longest, naming.target.table, decode.target_language),
    ):
        pieces = LONGEST - (language is not None) - 1  # eos, or bos, takes a position, too
        if table == LONGEST and most > pieces:
            raise UserError(
                f"decode.{key}={getattr(decode, key)}: not with CTranslate2, because its tables of "
                f"positions end at {pieces:,} pieces; {BY_NMT}"
            )
