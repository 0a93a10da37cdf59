"""Models that translate: one or several of this toolkit, or one that nmt-export wrote."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config import BEAM, Decode, Settings, freeze, thaw
from nmt.decode.translator import TextSides, Translator
from nmt.errors import UserError
from nmt.machine.device import pick
from nmt.modeldir import Trained


class LoadedModels(NamedTuple):
    """One model, or several that decide together."""

    sides: TextSides
    models: list[Trained]  # those of this toolkit; none where CTranslate2 translates
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

    `threads` are those of CTranslate2; of torch they are set elsewhere. `workers`: processes that
    search, or threads of CTranslate2 for a batch each; None: as many as pay for the text. Raises
    UserError for an exported model among others, and what `modeldir.load` raises.
    """
    from nmt.exchange import ctranslate2_engine  # only where models are read by path

    first, *others = paths
    exported = [path for path in paths if ctranslate2_engine.is_exported(Path(path))]
    if exported and others:
        raise UserError(
            f"{exported[0]}: CTranslate2 searches with one model; name the models themselves"
        )
    if exported:
        model, place = ctranslate2_engine.load(Path(first)), pick(device)
        return LoadedModels(
            model,
            [],
            [model.digest],
            place.type,
            lambda decode: Translator(
                model,
                decode,
                ctranslate2_engine.CTranslate2Engine(model, decode, place, threads),
                workers,
            ),
        )
    trained, *members = (modeldir.load(path, device) for path in paths)
    return LoadedModels(
        trained,
        [trained, *members],
        [member.digest for member in (trained, *members)],
        next(trained.model.parameters()).device.type,
        lambda decode: Translator.of(trained, decode, *members, workers=workers),
    )


def with_decode(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings of a model with other values under decode, checked as all are."""
    if not changes:
        return settings
    plain = freeze(settings)
    changed = thaw({**plain, "decode": {**plain["decode"], **changes}})
    before, after = vars(settings.decode), vars(changed.decode)
    idle = [key for key in BEAM if before[key] != after[key]]
    if idle and changed.decode.method == "sample":
        raise UserError(
            f"decode.{idle[0]}={changes[idle[0]]}: no effect on samples; leave it out, or choose "
            "decode.method=beam"
        )
    return changed


def check_n_best(count: int, decode: Decode, what: str, key: str) -> None:
    """Raise UserError if so many hypotheses are more than the search holds.

    `what` asks for them, as "--n-best 9"; `key` is how its user sets beam_size.
    """
    if decode.mbr and count > decode.mbr:
        raise UserError(f"{what}: decode.mbr={decode.mbr} has no more candidates; raise it")
    if decode.method == "beam" and count > decode.beam_size:
        raise UserError(f"{what}: the beam holds {decode.beam_size}; {key}={count}")
