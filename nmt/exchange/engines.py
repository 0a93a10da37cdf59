"""Load one or several models, and choose the engine that searches: nmt or CTranslate2.

CTranslate2 searches in an export of the model, which is written on first use into a directory next
to the checkpoint (see --engine). Its name identifies the model, the precision and the versions. The
directory may be removed at any time.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import __version__, modeldir
from nmt.config.settings import RESTRICTIONS, Decode, with_decode
from nmt.decode.lines import TextSides
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

SEARCH_ENGINES = ("nmt", "ctranslate2", "auto")
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, of AMD, of either below Windows

log = logging.getLogger(__name__)


class LoadedModels(NamedTuple):
    """One model, or several that decide together."""

    sides: TextSides
    models: "list[Trained]"  # empty if CTranslate2 translates
    digests: list[str]  # SHA-256 of each manifest
    device: str  # cpu or cuda
    translator: Callable[[Decode], Translator]  # UserError for unsupported settings


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

    `threads` are those of the whole process. Torch is imported, and set up, only if nmt searches.
    `workers`: processes that search, or threads of CTranslate2; None: as many as pay for the text.
    `engine` is one of SEARCH_ENGINES; None: nmt, or CTranslate2 for exports. `changes` are settings
    of decode, and `needs` names features of the call that CTranslate2 lacks.
    """
    exports = [path for path in paths if ctranslate2_engine.is_exported(Path(path))]
    if exports and engine == "nmt":
        raise UserError(f"{exports[0]}: holds a model for CTranslate2; {BY_NMT}")

    def find(device: DeviceName) -> ExportedModel:
        if exports:
            return ctranslate2_engine.load(Path(exports[0]))
        decode = with_decode(modeldir.read_settings(paths[0]), changes or {}).decode
        return find_export(Path(paths[0]), decode, device, partial(_read, threads=threads))

    engine = "ctranslate2" if exports else engine or "nmt"
    if export := _by_ctranslate2(engine, device, len(paths) > 1, needs, find):
        model, on_device = export
        threads = threads if workers in (None, 1) else workers

        def make_translator(decode: Decode) -> Translator:
            searching = CTranslate2Engine(model, decode, on_device, threads)
            return Translator(model, decode, searching, workers)

        return LoadedModels(model, [], [model.digest], on_device.type, make_translator)
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
    """The translator of models in memory; see `load`."""
    from nmt.system.device import usable_threads

    first = members[0]

    def find(device: DeviceName) -> ExportedModel:
        if first.directory is None or not modeldir.is_saved(first):
            raise UserError(f"model: is not what a directory holds; save it, load it, or {BY_NMT}")
        return find_export(first.directory, decode, device, modeldir.load)

    device = str(next(first.model.parameters()).device)
    if export := _by_ctranslate2(engine, device, len(members) > 1, needs, find):
        searching = CTranslate2Engine(export[0], decode, export[1], usable_threads())
        return Translator(first, decode, searching, workers)
    return Translator.of(first, decode, *members[1:], workers=workers)


def _by_ctranslate2(
    engine: str,
    device: str,
    has_others: bool,
    needs: Sequence[str],
    find: Callable[[DeviceName], ExportedModel],
) -> tuple[ExportedModel, DeviceName] | None:
    """The export in which CTranslate2 searches, and its device; None if nmt searches.

    Raises UserError if CTranslate2 cannot; with `auto` that is logged, and nmt searches.
    """
    if engine not in SEARCH_ENGINES:
        raise UserError(f"engine={engine}: choose among {', '.join(SEARCH_ENGINES)}")
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
        on_device = DeviceName("cpu") if engine == "auto" else ctranslate2_engine.pick(device)
        export = find(on_device)
    except UserError as error:
        if engine != "auto":
            raise
        reason, _, _ = str(error).rpartition("; ")
        log.info("nmt translates, not CTranslate2: %s", reason or error)
        return None
    log.info("CTranslate2 translates: %s", export.directory)
    return export, on_device


def is_cpu(name: str) -> bool:
    """Whether torch would compute on the CPU; it is imported only if a GPU may be meant."""
    if name == "cpu" or (name == "auto" and not any(Path(driver).exists() for driver in GPUS)):
        return True
    from nmt.system.device import pick

    return pick(name).type == "cpu"


def find_export(
    model: Path, decode: Decode, device: DeviceName, read: Callable[[Path], "Trained"]
) -> ExportedModel:
    """The export of a run or model directory for this search, made unless it exists.

    `read` reads a checkpoint that is exported.
    """
    _refuse_search(decode, device)
    from ctranslate2 import __version__ as engine_version

    def of(checkpoint: Path) -> ExportedModel:
        digest = modeldir.open_model(checkpoint).digest
        key = (digest, decode.precision, engine_version, __version__)
        absolute = checkpoint.resolve()  # "." has no name
        path = absolute.with_name(f"{absolute.name}.{CTRANSLATE2.module}") / "-".join(key)
        if not path.is_dir():
            _export(lambda: read(checkpoint), path, decode.precision)
        return ctranslate2_engine.load(path)

    export = modeldir.reading(model, of)
    _refuse_lengths(export.naming, decode)
    return export


def _export(read: Callable[[], "Trained"], path: Path, precision: str) -> None:
    """Make an export unless another process has; UserError (73) if it cannot be written."""
    from nmt.exchange.exporting import export

    waiting = f"{path.parent}: another process is exporting the model; waiting"
    try:
        with atomic.hold_lock(path.with_name(".lock"), waiting):
            if path.is_dir():
                return
            trained = read()
            log.info("exporting the model to CTranslate2, once: %s", path)
            atomic.sweep(path.parent)
            # a restriction of this search was refused; those of the model's settings do not count
            free = replace(trained.settings.decode, position_scale=1.0, **RESTRICTIONS)
            trained = trained._replace(settings=replace(trained.settings, decode=free))
            export(trained, path, precision=precision)
    except OSError as error:
        raise UserError(
            f"{path.parent}: the export for CTranslate2 cannot be written ({error.strerror}); "
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
    """Refuse lengths for which nmt has positions, but the tables of an export do not."""
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
