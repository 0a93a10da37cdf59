"""Trained models as a search needs them: settings, 8 bits, ensembles, input, cross-attention."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nmt import build
from nmt.config.data import WORDS, columns_of
from nmt.config.settings import Decode
from nmt.decode.engine import Source, Weights
from nmt.decode.search import Step
from nmt.encodings.base import least
from nmt.errors import UserError
from nmt.model.layers import Attention, AttentionRecord, FeedForward, watching
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system.device import has_low_precision, to_device
from nmt.system.machine import this_machine
from nmt.system.products import Int8, Packed
from nmt.text.vocab import BOS, PAD

LARGE: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("query", "key", "value", "out"),
    FeedForward: ("inner", "outer"),
    Transformer: ("output",),
}  # the linear layers in which nearly all of the time is spent
LEAST = 1e-4  # attention that counts for a source token without any, which would cost infinitely
NOT_FASTER = "decode.precision=%s: not faster than float32 on this CPU: float32 is used"

log = logging.getLogger(__name__)


def adapt(member: Trained, decode: Decode) -> Trained:
    """Give a model the languages and the scale of positions of these settings.

    It shares its weights with `member`, which stays as it is. Raises UserError for a language that
    the model lacks, and for a scale that its encodings do not follow.
    """
    trained = member.settings.decode
    languages = [(d.source_language, d.target_language) for d in (trained, decode)]
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

    Models may differ in encoding, size and training. Raises UserError if segmenter or vocabulary of
    one differs from the first. Settings are those whose corpus had most of the columns they read.
    """
    first = members[0]
    for number, member in enumerate(members[1:], start=2):
        for side in ("source", "target"):
            if getattr(first, side).to_json() != getattr(member, side).to_json():
                raise UserError(
                    f"model {number} of {len(members)}: segmenter or vocabulary of the {side} "
                    "differs from model 1; an ensemble needs runs of one corpus and segmenter"
                )
    if len(members) == 1:
        return first
    read = {name for member in members for name in member.model.columns} - {WORDS}
    settings = max((m.settings for m in members), key=lambda s: len(read & {*columns_of(s.data)}))
    longest = least(member.facts["longest_source"] for member in members)
    return first._replace(settings=settings, facts={**first.facts, "longest_source": longest})


def set_precision(models: Sequence[Transformer], precision: str) -> tuple[list[Transformer], bool]:
    """Models that compute in a number format, and whether torch is to round to bfloat16 for it.

    Their large matrices are in 8 bits, or laid out as the products of this CPU read them, where
    that is faster; all other parameters are shared. A format in which this CPU is not faster gives
    way to float32, with a warning. Raises UserError for one that the device does not have.
    """
    weight, machine = next(models[0].parameters()), this_machine()
    on_cpu = weight.device.type == "cpu"
    if precision == "int8" and not on_cpu:
        raise UserError(
            f"decode.precision=int8: for CPUs only, not for {weight.device}; there choose bfloat16"
        )
    if precision == "bfloat16" and weight.is_cuda and not has_low_precision(weight.device):
        raise UserError(
            f"decode.precision=bfloat16: {weight.device} has no units for it; choose float32"
        )
    faster = {"float32": True, "int8": machine.int8, "bfloat16": machine.searches_in_bfloat16}
    if on_cpu and not faster[precision]:
        log.warning(NOT_FASTER, precision)
        precision = "float32"
    if precision == "int8":
        return [_replace_linear(model, Int8) for model in models], False
    packs = on_cpu and weight.dtype == torch.float32 and machine.packs
    if precision == "float32" and packs:
        return [_replace_linear(model, Packed) for model in models], False
    return [*models], precision == "bfloat16"


def _replace_linear(model: Transformer, make: Callable[[nn.Linear], nn.Module]) -> Transformer:
    copied = build.shallow(model)
    for kind, names in LARGE.items():
        for module in [module for module in copied.modules() if isinstance(module, kind)]:
            for name in names:
                if isinstance(linear := getattr(module, name), nn.Linear):
                    setattr(module, name, make(linear))
    return copied


def as_tensors(sources: Sequence[Source], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids [batch, source] and columns [batch, source | 1], padded on the right."""
    columns = {
        name: _pad([source.columns[name] for source in sources], device)
        for name in sources[0].columns
    }
    return _pad([source.ids for source in sources], device), columns


def as_inputs(
    pairs: Sequence[Source], device: torch.device
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The input of `Transformer.hidden`: sources, targets with BOS and without EOS, columns."""
    source, columns = as_tensors(pairs, device)
    return source, _pad([[BOS, *pair.target[:-1]] for pair in pairs], device), columns


def _pad(rows: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    tensors = [torch.tensor(row) for row in rows]
    rows_padded = pad_sequence(tensors, batch_first=True, padding_value=PAD)  # [rows, longest]
    return to_device(rows_padded, device)


def aligning_layer(layers: Sequence[Tensor]) -> Tensor:
    """The last decoder layer but one, which aligns best (Garg et al. 2019), or the only one."""
    return layers[max(0, len(layers) - 2)]


def cross_attention(
    models: Sequence[Transformer],
    pairs: Sequence[Source],
    choose: Callable[[Sequence[Tensor]], Tensor] = aligning_layer,
) -> list[Weights]:
    """[target, source] of each pair of a batch: of the steps that predict the ids of its target.

    It is the mean over heads, and over models, of what is chosen of the layers.
    """
    device = next(models[0].parameters()).device
    ids, prefixes, columns = as_inputs(pairs, device)  # [batch, source], [batch, target]
    total = torch.zeros(*prefixes.shape, ids.shape[1], device=device)
    for model in models:
        with torch.no_grad(), record_layers(model) as layers:
            model.hidden(ids, prefixes, columns)
        # without pieces for languages
        total += choose(layers)[:, -prefixes.shape[1] :, -ids.shape[1] :] / len(models)
    means = total.cpu()
    return [
        weights[: len(pair.target), : len(pair.ids)].numpy()
        for weights, pair in zip(means, pairs, strict=True)
    ]


@contextmanager
def record_layers(model: Transformer) -> Iterator[list[Tensor]]:
    """Within the block, each layer adds its cross-attention [sentence, query, source] over heads.

    The model serves no other thread meanwhile.
    """
    layers: list[Tensor] = []

    def add(record: AttentionRecord) -> None:
        if record.site == "cross":
            p = record.probabilities.unflatten(0, (-1, model.streams))
            layers.append(p.float().mean((1, 2)))

    with watching(model, add):
        yield layers


def mean_over_layers(layers: Sequence[Tensor]) -> Tensor:
    """The mean of what `record_layers` recorded in one pass [sentence, query, source]."""
    return sum(layers[1:], layers[0]) / len(layers)


class CoveragePenalty:
    """A step, and the coverage penalty of Wu et al. (2016) for its outputs.

    Outputs that leave something out rank lower. The penalty depends on the cross-attention that
    each source token has received from an output so far, a mean over heads, layers and models.
    """

    def __init__(
        self, step: Step, weight: float, pieces: Tensor, models: Sequence[Transformer]
    ) -> None:
        """`pieces` [sentences, source]: true for tokens to be covered, not padding and eos."""
        self.step, self.weight, self.models = step, weight, models
        self._pieces = pieces  # [row, source]
        self._attended = torch.zeros(pieces.shape, device=pieces.device)  # [row, source]

    def penalties(self) -> Tensor:
        """The penalty of each output [row] that ends now: weight x sum log min(attention, 1)."""
        logs = self._attended.clamp(LEAST, 1).log()
        return self.weight * torch.where(self._pieces, logs, 0).sum(1)

    def __call__(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Take the step, and add up its attention."""
        if parents is not None:
            rows = parents.flatten()
            self._pieces, self._attended = self._pieces[rows], self._attended[rows]
        with ExitStack() as recorded:
            recordings = [recorded.enter_context(record_layers(model)) for model in self.models]
            log_probs = self.step(tokens, parents)
        means = [mean_over_layers(layers) for layers in recordings]
        # hypotheses of one sentence are its queries
        self._attended = self._attended + torch.stack(means).mean(0).flatten(0, 1)
        return log_probs
