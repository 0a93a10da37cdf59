"""The tensors of Marian models and ours: names, and the order of rows and columns."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmt.config.settings import Model
from nmt.exchange.interface import invalid
from nmt.exchange.marian_ids import MarianIds
from nmt.modeldir import Trained

# The logit of an id that Marian does not have: its probability is negligible, and so is its share
# of a loss by label smoothing when training continues.
NEVER = -100.0
HUGGING_FACE, MARIAN = 0, 1  # families of files
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
# model.tie -> our name of each matrix -> its possible names, by family
_MATRICES: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {
    "all": {"source_embedding": (("shared.weight", _SOURCE, _TARGET, OUTPUT), ("Wemb",))},
    "target": {
        "source_embedding": ((_SOURCE,), ("encoder_Wemb",)),
        "target_embedding": ((_TARGET, OUTPUT), ("decoder_Wemb",)),
    },
    "none": {
        "source_embedding": ((_SOURCE,), ("encoder_Wemb",)),
        "target_embedding": ((_TARGET,), ("decoder_Wemb",)),
        "output": ((OUTPUT,), ("decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt")),
    },
}
_LAYER = {  # our module -> that of Hugging Face, and the weight and bias of Marian itself
    "attention.query": ("self_attn.q_proj", "self_Wq", "self_bq"),
    "attention.key": ("self_attn.k_proj", "self_Wk", "self_bk"),
    "attention.value": ("self_attn.v_proj", "self_Wv", "self_bv"),
    "attention.out": ("self_attn.out_proj", "self_Wo", "self_bo"),
    "around_attention.norm": ("self_attn_layer_norm", "self_Wo_ln_scale", "self_Wo_ln_bias"),
    "cross.query": ("encoder_attn.q_proj", "context_Wq", "context_bq"),
    "cross.key": ("encoder_attn.k_proj", "context_Wk", "context_bk"),
    "cross.value": ("encoder_attn.v_proj", "context_Wv", "context_bv"),
    "cross.out": ("encoder_attn.out_proj", "context_Wo", "context_bo"),
    "around_cross.norm": ("encoder_attn_layer_norm", "context_Wo_ln_scale", "context_Wo_ln_bias"),
    "feedforward.inner": ("fc1", "ffn_W1", "ffn_b1"),
    "feedforward.outer": ("fc2", "ffn_W2", "ffn_b2"),
    "around_feedforward.norm": ("final_layer_norm", "ffn_ffn_ln_scale", "ffn_ffn_ln_bias"),
}


def names(shape: Model, family: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our name of each tensor, and its possible names in a family.

    Those of Hugging Face are without "model."; a shared layer comes once for each pass.
    """
    for ours, theirs in _MATRICES[shape.tie].items():
        yield f"{ours}.weight", theirs[family]
    yield "output.bias", ((BIAS,), ("decoder_ff_logit_out_b",))[family]
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for n in range(count):
            layer = f"{stack}.layers.{0 if shape.share_layers else n}"
            for module, (place, *marian) in _LAYER.items():
                if stack == "decoder" or "cross" not in module:
                    for kind, name in zip(("weight", "bias"), marian, strict=True):
                        both = f"{stack}.layers.{n}.{place}.{kind}", f"{stack}_l{n + 1}_{name}"
                        yield f"{layer}.{module}.{kind}", (both[family],)
        for kind in ("weight", "bias") if shape.norm == "pre" else ():
            yield f"{stack}.norm.{kind}", (f"{stack}.layer_norm.{kind}",)


def to_ours(
    path: Path, tensors: Mapping[str, Tensor], shape: Model, ids: Sequence[MarianIds], family: int
) -> dict[str, Tensor]:
    """The tensors under our names; UserError (65) for a missing or superfluous one.

    `ids`: of source and target. Tensors are laid out as in torch: a row for each piece, a linear
    map [out, in].
    """
    left, ours = {**tensors}, dict[str, Tensor]()
    for name, theirs in names(shape, family):
        copies = {place: left.pop(place) for place in theirs if place in left}
        if not copies:
            raise invalid(path, f"has no {theirs[0]}; it is incomplete")
        (first, tensor), *others = copies.items()
        if not torch.isfinite(tensor).all():
            raise invalid(path, f"{first} holds numbers that are not finite")
        if not all(torch.equal(tensor, other) for _, other in others):
            raise invalid(path, f"{', '.join(copies)} differ, and should be one matrix")
        if side := _side(name, ids):
            if tensor.shape[:1] != (side.size,):
                size = f"{first} is {list(tensor.shape)}"
                raise invalid(path, f"the vocabulary has {side.size} pieces, but {size}")
            tensor = side.rows(tensor)
        ours[name] = tensor
    if left:
        name = min(left)
        what = f"the tensor {name}, {list(left[name].shape)}, has no place in the model"
        raise invalid(path, f"{what} that its config describes")
    ours["output.bias"][ids[1].absent] = NEVER
    return ours


def to_theirs(
    trained: Trained, order: Tensor, ids: Sequence[MarianIds], family: int
) -> dict[str, Tensor]:
    """The inverse of `to_ours`; a tensor with several names gets the first.

    `order` [dim]: our component at each place of the engine's vectors.
    """
    tensors: dict[str, Tensor] = {}
    for name, theirs in names(trained.settings.model, family):
        values: Tensor = trained.model.get_parameter(name)
        side = _side(name, ids)
        module, kind = name.split(".")[-2:]
        if side is None and module not in ("query", "key", "value", "inner"):
            values = values[order]  # a map that writes such vectors, or a norm
        elif kind == "weight":
            values = values[:, order]  # a map that reads them, or embeddings
        values = side.their_rows(values) if side else values.clone()  # a layer may be shared
        tensors[theirs[0]] = values.detach().float().cpu().contiguous()
    return tensors


def _side(name: str, ids: Sequence[MarianIds]) -> MarianIds | None:
    """The side whose ids number the rows of a tensor of ours; None: neither."""
    if name.startswith("source_embedding."):
        return ids[0]
    return ids[1] if name.startswith(("target_embedding.", "output.")) else None
