"""A model as a specification of CTranslate2 4.8: its weights, and its positions in that form.

What CTranslate2 makes of a specification stands in its src/layers/attention.cc and transformer.cc:
vectors for distances are clipped at their number, key minus query; numbers for distances are
T5's buckets, half of them for a distance each and the rest in logarithmic steps; a position beyond
a table of positions is an error.
"""

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config import Model, Settings
from nmt.data.vocab import Vocabulary
from nmt.encodings.base import Dims
from nmt.encodings.composition import Encodings
from nmt.exchange import site_positions, unshared
from nmt.exchange.site_positions import SitePositions
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
NAMES = ("<blank>", "<s>", "</s>", "<unk>")  # of our special ids, unless a piece is called so


class Exported(NamedTuple):
    """A specification, and what one has to know about it."""

    spec: Any  # ctranslate2.specs.TransformerSpec
    source: list[str]  # names of our ids
    target: list[str]
    longest_source: int | None  # tokens, eos included, that its tables are right for; None: any
    longest_target: int | None  # likewise, bos included


def specification(trained: Trained, longest: int) -> Exported:
    """Write a model down for CTranslate2, with tables for up to `longest` tokens.

    Raises UserError that names what cannot be expressed, and why.
    """
    from ctranslate2 import specs

    model: Any = trained.model
    shape = trained.settings.model
    sites = positions(trained.settings, trained.model, longest)
    options = {
        "pre_norm": shape.norm == "pre",
        "activation": getattr(specs.common_spec.Activation, ACTIVATIONS[shape.activation]),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(
            shape.encoder_layers, shape.heads, **options, **_words(sites["encoder"])
        ),
        specs.TransformerDecoderSpec(
            shape.decoder_layers, shape.heads, **options, **_words(sites["decoder"])
        ),
    )
    spec.encoder.embeddings[0].weight = _numbers(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _numbers(model.target_embedding.weight)
    _linear(spec.decoder.projection, model.output)
    for name, side, stack in (
        ("encoder", spec.encoder, model.encoder),
        ("decoder", spec.decoder, model.decoder),
    ):
        if shape.norm == "pre":
            _norm(side.layer_norm, stack.norm)
        for number, layer in enumerate(side.layer):  # a layer that is shared is written each time
            _layer(layer, stack.layers[number % len(stack.layers)])
        _place(side, sites[name])
    source, target = names(trained.source.vocabulary, trained.target.vocabulary)
    _vocabularies(spec, source, target)
    spec.config.add_source_eos = shape.source_eos
    spec.validate()
    return Exported(spec, source, target, sites["encoder"].limit, sites["decoder"].limit)


def names(source: Vocabulary, target: Vocabulary) -> tuple[list[str], list[str]]:
    """What CTranslate2 calls each id of both sides: the pieces, and before them our special ids.

    Those are called NAMES, with an underscore more as long as a piece of the text is called so.
    """
    taken = {*source.to_json(), *target.to_json()}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    special = [*map(free, NAMES)]
    return [*special, *source.to_json()], [*special, *target.to_json()]


def positions(settings: Settings, model: Transformer, longest: int) -> dict[str, SitePositions]:
    """The positions of encoder and decoder in a form that CTranslate2 has, for so many tokens.

    Raises UserError for what it does not have, of the encodings or of the rest of the model.
    """
    unshared.refuse(settings, model, "CTranslate2")
    sizes = {
        "encoder": model.source_embedding.num_embeddings,
        "decoder": model.target_embedding.num_embeddings,
    }
    return {
        name: _positions(model.sites[name], name, settings.model, longest, vocab)
        for name, vocab in sizes.items()
    }


def _positions(site: Encodings, name: str, shape: Model, longest: int, vocab: int) -> SitePositions:
    layers = shape.encoder_layers if name == "encoder" else shape.decoder_layers
    width = shape.dim // shape.heads
    return site_positions.read(
        site, Dims(name, layers, shape.heads, shape.dim, width, vocab), longest
    )


def _words(positions: SitePositions) -> dict[str, Any]:
    """What the specification of a stack is told about its positions."""
    words: dict[str, Any] = {}
    if positions.keys is not None:
        words["relative_position"] = True
    if positions.bias is not None:
        words["relative_attention_bias"] = True
    if (turns := positions.turns) is not None:
        words |= {"rotary_dim": turns.dim, "rotary_interleave": turns.interleaved}
        words["rotary_base"] = turns.base
        if turns.slow != 1:
            from ctranslate2.specs.attention_spec import RotaryScalingType

            words |= {"rotary_scaling_type": RotaryScalingType.Linear}
            words |= {"rotary_scaling_factor": turns.slow}
    return words


def _place(stack: Any, positions: SitePositions) -> None:
    """Hand positions over to a stack."""
    if positions.table is not None:
        stack.position_encodings.encodings = _numbers(positions.table)
    for number, layer in enumerate(stack.layer):
        attention = layer.self_attention
        if positions.keys is not None and positions.values is not None:
            attention.relative_position_keys = _numbers(positions.keys[number])
            attention.relative_position_values = _numbers(positions.values[number])
        if positions.bias is not None:
            ahead = stack_sees_ahead(stack)
            buckets = t5_buckets(positions.bias[number], ahead)  # [buckets, heads]
            attention.relative_attention_bias = _numbers(buckets)
            most = len(buckets)  # beyond the buckets of one distance each
            attention.relative_attention_max_distance = np.dtype("int32").type(most)
        if positions.scale is not None:
            attention.queries_scale = np.dtype("float32").type(positions.scale)


def stack_sees_ahead(stack: Any) -> bool:
    """Whether a stack is an encoder, whose buckets are for both directions."""
    return not hasattr(stack, "projection")


def t5_buckets(by_distance: Tensor, both_sides: bool) -> Tensor:
    """Numbers by distance [heads, 2 n - 1], as a table of T5 [buckets, heads].

    The first half of a side's buckets is for the distances 0 .. n - 1, one each; the second half is
    for all beyond, which get the number of distance n - 1. Keys ahead come second.
    """
    n = (by_distance.shape[1] + 1) // 2
    behind, ahead = by_distance[:, :n].flip(1), by_distance[:, n - 1 :]
    sides = [behind, ahead] if both_sides else [behind]
    return torch.cat([part for s in sides for part in (s, s[:, -1:].expand(-1, n))], dim=1).T


def _layer(spec: Any, layer: Any) -> None:
    """The sublayers of an encoder's or a decoder's layer."""
    _norm(spec.self_attention.layer_norm, layer.around_attention.norm)
    own = layer.attention
    _linear(spec.self_attention.linear[0], own.query, own.key, own.value)
    _linear(spec.self_attention.linear[1], own.out)
    if hasattr(spec, "attention"):
        cross = layer.cross
        _norm(spec.attention.layer_norm, layer.around_cross.norm)
        _linear(spec.attention.linear[0], cross.query)
        _linear(spec.attention.linear[1], cross.key, cross.value)
        _linear(spec.attention.linear[2], cross.out)
    _norm(spec.ffn.layer_norm, layer.around_feedforward.norm)
    _linear(spec.ffn.linear_0, layer.feedforward.inner)
    _linear(spec.ffn.linear_1, layer.feedforward.outer)


def _linear(spec: Any, *parts: nn.Module) -> None:
    """A linear map, or several of the same input as one; keys without one are the input itself."""
    size = cast(nn.Linear, parts[-1]).weight.shape[1]
    weights = [p.weight if isinstance(p, nn.Linear) else torch.eye(size) for p in parts]
    biases = [p.bias if isinstance(p, nn.Linear) else torch.zeros(size) for p in parts]
    spec.weight, spec.bias = _numbers(torch.cat(weights)), _numbers(torch.cat(biases))


def _norm(spec: Any, part: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numbers(part.weight), _numbers(part.bias)


def _vocabularies(spec: Any, source: list[str], target: list[str]) -> None:
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    _, bos, eos, unk = target[: len(NAMES)]
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = bos, eos, unk
    spec.config.decoder_start_token = bos
    spec.config.add_source_bos = False


def _numbers(t: Tensor) -> Any:
    """A copy: CTranslate2 quantises in place."""
    return np.array(t.detach().float().cpu().numpy(), order="C")
