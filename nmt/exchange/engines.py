"""Models that translate, one or several, and the engine that searches in them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import Decode, with_decode
from nmt.decode.sources import TextSides
from nmt.decode.translator import Translator
from nmt.errors import UserError
from nmt.exchange import ctranslate2_cache, ctranslate2_engine
from nmt.exchange.adapter import CTRANSLATE2
from nmt.exchange.ctranslate2_engine import BY_NMT, CTranslate2Engine, ExportedModel
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
    is asked of it are `changes` of decode, and `needs`, names of what CTranslate2 cannot do. Raises
    UserError for an exported model among others, and what `modeldir.load` raises.
    """
    exports = [path for path in paths if ctranslate2_engine.is_exported(Path(path))]
    if exports and engine == "nmt":
        raise UserError(f"{exports[0]}: holds a model for CTranslate2; {BY_NMT}")

    def own(paths: Sequence[str | Path], device: str = "cpu") -> "list[Trained]":
        from nmt import modeldir
        from nmt.system.device import pick, set_up

        set_up(pick(device), threads=threads)
        return [modeldir.load(path, device) for path in paths]

    def find(place: DeviceName) -> ExportedModel:
        if exports:
            return ctranslate2_engine.load(Path(exports[0]))
        decode = with_decode(modeldir.read_settings(paths[0]), changes or {}).decode
        return ctranslate2_cache.exported(
            Path(paths[0]), decode, place, lambda checkpoint: own([checkpoint])[0]
        )

    engine = "ctranslate2" if exports else engine or "nmt"
    others = len(paths) > 1
    if found := _by_ctranslate2(engine, device, others, needs, find):
        model, place = found
        threads = threads if workers in (None, 1) else workers
        return LoadedModels(
            model,
            [],
            [model.digest],
            place.type,
            lambda decode: Translator(
                model, decode, CTranslate2Engine(model, decode, place, threads), workers
            ),
        )
    trained, *members = own(paths, device)
    return LoadedModels(
        trained,
        [trained, *members],
        [member.digest for member in (trained, *members)],
        next(trained.model.parameters()).device.type,
        lambda decode: Translator.of(trained, decode, *members, workers=workers),
    )


def translator(
    members: Sequence["Trained"],
    decode: Decode,
    workers: int | None = 1,
    engine: str = "nmt",
    needs: Sequence[str] = (),
) -> Translator:
    """That of models in memory; see `load`."""
    from nmt import modeldir
    from nmt.system.device import usable_threads

    first, *others = members

    def find(place: DeviceName) -> ExportedModel:
        if first.directory is None or not modeldir.is_saved(first):
            raise UserError(f"model: is not what a directory holds; save it, load it, or {BY_NMT}")
        return ctranslate2_cache.exported(first.directory, decode, place, modeldir.load)

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
    from nmt.exchange.ctranslate2_adapter import CTranslate2Adapter

    try:
        ctranslate2_cache.refuse(decode, DeviceName("cpu"))
        ctranslate2_cache.check_lengths(CTranslate2Adapter(loaded.models[0]).naming, decode)
    except UserError:
        return
    log.info("next time, --engine auto lets CTranslate2 search, mostly in less time")


def is_cpu(name: str) -> bool:
    """Whether torch would compute on the CPU; it is asked only where a GPU may be meant."""
    if name == "cpu" or (name == "auto" and not any(Path(driver).exists() for driver in GPUS)):
        return True
    from nmt.system.device import pick

    return pick(name).type == "cpu"
