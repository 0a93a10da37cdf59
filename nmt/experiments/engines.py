"""Models that translate: one or several of this toolkit, or one that nmt-export wrote."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.config import Decode
from nmt.decode.lines import TextSides
from nmt.decode.translator import Translator
from nmt.errors import UserError
from nmt.exchange import ctranslate2_engine
from nmt.exchange.ctranslate2_engine import CTranslate2Engine

if TYPE_CHECKING:
    from nmt.modeldir import Trained


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
) -> LoadedModels:
    """Read run or model directories, or one that nmt-export wrote for CTranslate2.

    `threads` are those of the whole process. Torch is imported, and set up, for models of this
    toolkit alone. `workers`: processes that search, or threads of CTranslate2 for a batch each;
    None: as many as pay for the text. Raises
    UserError for an exported model among others, and what `modeldir.load` raises.
    """
    first, *others = paths
    exported = [path for path in paths if ctranslate2_engine.is_exported(Path(path))]
    if exported and others:
        raise UserError(
            f"{exported[0]}: CTranslate2 searches with one model; name the models themselves"
        )
    if exported:
        model, place = ctranslate2_engine.load(Path(first)), ctranslate2_engine.pick(device)
        return LoadedModels(
            model,
            [],
            [model.digest],
            place.type,
            lambda decode: Translator(
                model, decode, CTranslate2Engine(model, decode, place, threads), workers
            ),
        )
    from nmt import modeldir
    from nmt.machine.device import pick, set_up

    set_up(pick(device), threads=threads)
    trained, *members = (modeldir.load(path, device) for path in paths)
    return LoadedModels(
        trained,
        [trained, *members],
        [member.digest for member in (trained, *members)],
        next(trained.model.parameters()).device.type,
        lambda decode: Translator.of(trained, decode, *members, workers=workers),
    )
