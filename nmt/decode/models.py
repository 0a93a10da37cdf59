"""Trained models as a search needs them (its settings, 8 bits, ensembles), and their input."""

import logging
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nmt import build
from nmt.config.data import WORDS, columns_of
from nmt.config.settings import Decode
from nmt.decode.sources import Source
from nmt.encodings.limits import least
from nmt.errors import UserError
from nmt.model.layers import Attention, FeedForward
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system.device import to_device
from nmt.system.machine import this_machine
from nmt.system.products import Int8, Packed
from nmt.text.vocab import BOS, PAD

LARGE: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("query", "key", "value", "out"),
    FeedForward: ("inner", "outer"),
    Transformer: ("output",),
}  # the linear layers in which nearly all of the time is spent

log = logging.getLogger(__name__)


def adapt(member: Trained, decode: Decode) -> Trained:
    """Give a model the languages and the scale of positions of these settings.

    It shares its weights with `member`, which stays as it is. Raises UserError for a language that
    the model lacks, and for a scale that its encodings do not follow.
    """
    own = member.settings.decode
    languages = [(d.source_language, d.target_language) for d in (own, decode)]
    if languages[0] == languages[1] and decode.position_scale == 1:
        return member
    model = build.shallow(member.model)
    build.set_languages(model, decode, member.source.vocabulary, member.target.vocabulary)
    if decode.position_scale != 1:
        try:
            model.scale_positions(decode.position_scale)
        except ValueError as error:
            raise UserError(f"decode.position_scale={decode.position_scale}: {error}") from None
    return member._replace(model=model)


def combine(members: Sequence[Trained]) -> Trained:
    """Return the first model of an ensemble, with settings and facts that hold for all of them.

    Models may differ in encoding, size and training. Raises UserError where segmenter or vocabulary
    is not that of the first, and where no member's corpus had all columns that they read.
    """
    first = members[0]
    for number, other in enumerate(members[1:], start=2):
        for side in ("source", "target"):
            ours, theirs = getattr(first, side).to_json(), getattr(other, side).to_json()
            for part in ("segmenter", "vocabulary"):
                if ours[part] != theirs[part]:
                    raise UserError(
                        f"model {number} of {len(members)}: its {part} of the {side} is not that "
                        "of model 1; an ensemble needs models of one text preparation, such as "
                        "runs of one corpus with other seeds or encodings"
                    )
    if len(members) == 1:
        return first
    read = {name for member in members for name in member.model.columns} - {WORDS}
    complete = [m.settings for m in members if read <= set(columns_of(m.settings.data))]
    if not complete:
        raise UserError(
            f"columns {', '.join(sorted(read))}: no model of the ensemble had all of them in its "
            "corpus; leave out the models that read other columns"
        )
    longest = least(member.facts["longest_source"] for member in members)
    return first._replace(settings=complete[0], facts={**first.facts, "longest_source": longest})


def quantise(model: Transformer) -> Transformer:
    """Round the large matrices of a model to 8 bits; all other parameters are shared with it.

    Returns the model itself, with a warning, where this CPU is not faster so. Raises UserError
    where the model is not on a CPU.
    """
    device = model.output.weight.device
    if device.type != "cpu":
        raise UserError(
            f"decode.precision=int8: for CPUs only, not for {device}; there choose bfloat16"
        )
    if not this_machine().int8:
        log.warning("decode.precision=int8: not faster than float32 on this CPU: float32 is used")
        return pack(model)
    return _replace_linear(model, Int8)


def pack(model: Transformer) -> Transformer:
    """Lay out the large matrices as the products of this CPU read them, where that is faster.

    All other parameters are shared with the model.
    """
    weight = next(model.parameters())
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return _replace_linear(model, Packed) if on_cpu and this_machine().packs else model


def _replace_linear(model: Transformer, make: Callable[[nn.Linear], nn.Module]) -> Transformer:
    copied = build.shallow(model)
    for module in list(copied.modules()):
        for name in next((n for kind, n in LARGE.items() if isinstance(module, kind)), ()):
            if isinstance(linear := getattr(module, name), nn.Linear):
                setattr(module, name, make(linear))
    return copied


def as_tensors(sources: Sequence[Source], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids [batch, source] and columns [batch, source | 1], padded on the right."""
    columns = {
        name: _padded([source.columns[name] for source in sources], device)
        for name in sources[0].columns
    }
    return _padded([source.ids for source in sources], device), columns


def as_inputs(
    pairs: Sequence[Source], device: torch.device
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """What `Transformer.hidden` reads: sources, targets behind BOS without EOS, and columns."""
    source, columns = as_tensors(pairs, device)
    return source, _padded([[BOS, *pair.target[:-1]] for pair in pairs], device), columns


def _padded(rows: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    """[rows, longest], padded on the right."""
    tensors = [torch.tensor(row) for row in rows]
    return to_device(pad_sequence(tensors, batch_first=True, padding_value=PAD), device)
