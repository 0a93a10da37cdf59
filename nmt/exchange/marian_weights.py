"""The tensors of a Marian model and ours: names, and the order of their rows and columns."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt import build, modeldir, preflight
from nmt.config import Model, Settings
from nmt.data.segmenter import Segmenter
from nmt.data.side import Side
from nmt.data.vocab import BOS, PAD
from nmt.encodings.sinusoids import Denominator, Layout, sinusoids
from nmt.errors import Exit, UserError
from nmt.exchange.marian_ids import MarianIds
from nmt.modeldir import Trained

# The logit of an id that Marian does not have: its probability is negligible, and the
# share of it that label smoothing adds to a loss, when training goes on, is next to nothing, too.
NEVER = -100.0
TABLE_ERROR = 1e-4  # of stored sinusoids: some were computed in float32, up to position 512
FILES = (  # those of the first pattern that there are
    *("model.safetensors", "model-*-of-*.safetensors"),
    *("pytorch_model-*-of-*.bin", "pytorch_model.bin"),
)
_SHARED = "shared.weight"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
_OUTPUT = "lm_head.weight"
_MATRICES: dict[
    str, dict[str, tuple[str, ...]]
] = {  # model.tie -> our name of each matrix -> under which of theirs it may stand
    "all": {"source_embedding": (_SHARED, _SOURCE, _TARGET, _OUTPUT)},
    "target": {"source_embedding": (_SOURCE,), "target_embedding": (_TARGET, _OUTPUT)},
    "none": {
        "source_embedding": (_SOURCE,),
        "target_embedding": (_TARGET,),
        "output": (_OUTPUT,),
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


def layer_tensors(shape: Model) -> Iterator[tuple[str, int, str, str, str]]:
    """Each parameter of the layers: stack, number of the layer from 0, and its three names.

    Ours within the layer, that of Hugging Face without "model.", and that of Marian itself.
    """
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for n in range(count):
            for module, (theirs, *marian) in _LAYER.items():
                if stack == "decoder" or "cross" not in module:
                    for kind, name in zip(("weight", "bias"), marian, strict=True):
                        place = f"{stack}.layers.{n}.{theirs}.{kind}"
                        yield stack, n, f"{module}.{kind}", place, f"{stack}_l{n + 1}_{name}"


def read(directory: Path) -> dict[str, Tensor]:
    """The weights, in float32; of files of torch only by its loader that runs no code."""
    found = next(filter(None, (sorted(directory.glob(pattern)) for pattern in FILES)), None)
    tensors: dict[str, Tensor] = {}
    for where in found or [directory / FILES[-1]]:
        tensors |= _read_file(where)
    if (directory / "adapter_config.json").exists() or any(
        not (tensor.is_floating_point() and tensor.itemsize > 1) for tensor in tensors.values()
    ):
        raise UserError(
            f"{directory}: weights of an adapter, or quantised; give the whole model in float32 or "
            "float16",
            Exit.DATA,
        )
    return {name: tensor.float() for name, tensor in tensors.items()}


def _read_file(where: Path) -> dict[str, Tensor]:
    is_safe = where.suffix == ".safetensors"
    try:
        if is_safe:
            tensors: Any = safetensors.torch.load_file(where)  # it stays on disk
        else:
            tensors = torch.load(where, map_location="cpu", weights_only=True)
    except OSError as error:
        why = error.strerror or "no such file"
        raise UserError(f"{where}: {why}; it is incomplete", Exit.DATA) from None
    except Exception as error:  # of a damaged file torch raises whatever it comes upon
        if not isinstance(error, SafetensorError) and is_safe:
            raise
        raise UserError(f"{where}: damaged, or holds more than tensors", Exit.DATA) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(t, Tensor) and t.ndim and t.numel() for t in tensors.values()
    ):
        raise UserError(f"{where}: expected names of tensors, none empty or a number", Exit.DATA)
    if not_finite := [n for n, t in tensors.items() if not torch.isfinite(t).all()]:
        raise UserError(f"{where}: {not_finite[0]} holds numbers that are not finite", Exit.DATA)
    return tensors


def take_positions(
    directory: Path,
    tensors: dict[str, Tensor],
    dim: int,
    layout: Layout,
    denominator: Denominator,
    start: int,
) -> None:
    """Take the tables of positions away; UserError (65) unless they are these sinusoids."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight{'s' if start else ''}"
        if (table := tensors.pop(name, None)) is None:
            continue
        usual = sinusoids(torch.arange(len(table)), dim, layout, denominator)
        if start:
            usual[1:2] = 0  # of padding
        if table.shape != usual.shape or (table - usual).abs().max() > TABLE_ERROR:
            raise UserError(f"{directory}: {name} holds other positions than sinusoids", Exit.DATA)


def to_ours(
    where: Path, tensors: Mapping[str, Tensor], shape: Model, source: MarianIds, target: MarianIds
) -> dict[str, Tensor]:
    """The tensors under our names; UserError (65) for one that has no place, or is missing."""
    names = {
        theirs: f"{stack}.layers.{number}.{ours}"
        for stack, number, ours, theirs, _ in layer_tensors(shape)
    }
    if shape.norm == "pre":
        names |= {
            f"{stack}.layer_norm.{kind}": f"{stack}.norm.{kind}"
            for stack in ("encoder", "decoder")
            for kind in ("weight", "bias")
        }
    matrices: dict[str, Tensor] = {}
    ours: dict[str, Tensor] = {}
    bias = torch.zeros(len(target.theirs))
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        if short in names:
            ours[names[short]] = tensor
        elif short in (_SHARED, _SOURCE, _TARGET, _OUTPUT):
            matrices[short] = tensor
        elif name == "final_logits_bias":
            bias = tensor.flatten()
        else:
            raise UserError(
                f"{where}: the tensor {name}, {list(tensor.shape)}, has no place in the model "
                "that config.json describes",
                Exit.DATA,
            )
    for name, theirs in _MATRICES[shape.tie].items():
        side = source if name == "source_embedding" else target
        table = _matrix(where, matrices, theirs)
        _check_rows(where, theirs[0], len(table), side)
        ours[f"{name}.weight"] = side.rows(table)
    _check_rows(where, "final_logits_bias", len(bias), target)
    ours["output.bias"] = target.rows(bias)
    ours["output.bias"][PAD if target.pad is None else BOS] = NEVER
    if not shape.target_bos:
        ours["output.bias"][BOS] = NEVER
    return ours


def trained_of(
    where: Path,
    settings: Settings,
    tensors: Mapping[str, Tensor],
    segmenters: Sequence[Segmenter],
    ids: Sequence[MarianIds],
    longest: int | None,
) -> Trained:
    """The model that has their tensors; segmenters and ids are those of source and target.

    `longest`: pieces of the longest source in training, None: unknown. Raises what `to_ours` and
    `preflight.check` do.
    """
    preflight.check(settings)
    source, target = map(Side, segmenters, [side.vocabulary for side in ids])
    with build.Uninitialised():
        model = build.model(settings, source.vocabulary, target.vocabulary).eval()
    modeldir.set_weights(model, to_ours(where, tensors, settings.model, *ids), where)
    return Trained(settings, model, source, target, {"longest_source": longest})


def _check_rows(directory: Path, name: str, rows: int, side: MarianIds) -> None:
    if rows != len(side.theirs):
        raise UserError(
            f"{directory}: the vocabulary has {len(side.theirs)} pieces, but {name} {rows} rows",
            Exit.DATA,
        )


def _matrix(directory: Path, matrices: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    """One matrix, which may stand under several names."""
    present = [name for name in names if name in matrices]
    if not present:
        raise UserError(f"{directory}: has no {names[0]}; it is incomplete", Exit.DATA)
    if not all(torch.equal(matrices[present[0]], matrices[other]) for other in present[1:]):
        raise UserError(
            f"{directory}: {', '.join(present)} differ, and should be one matrix", Exit.DATA
        )
    return matrices[present[0]]


def to_theirs(
    model: Any, shape: Model, order: Tensor, source: MarianIds, target: MarianIds
) -> dict[str, Tensor]:
    """Our weights under their names; those of a layer that is shared once for each pass.

    `order` [dim]: which of our components each of theirs is.
    """
    tensors: dict[str, Tensor] = {}
    for ours, (name, *_) in _MATRICES[shape.tie].items():
        side = source if ours == "source_embedding" else target
        table = model.get_submodule(ours).weight
        tensors[name if name == _OUTPUT else f"model.{name}"] = side.their_rows(table[:, order])
    if target.pad is None:
        tensors["final_logits_bias"] = target.their_rows(model.output.bias)[None]
    for stack in ("encoder", "decoder"):
        for kind, values in model.get_submodule(stack).norm.named_parameters():
            tensors[f"model.{stack}.layer_norm.{kind}"] = values[order]
    for stack, number, name, theirs, _ in layer_tensors(shape):
        layers = model.get_submodule(stack).layers
        values = layers[number % len(layers)].get_parameter(name)
        tensors[f"model.{theirs}"] = _ordered(values, name, order)
    return {name: t.detach().float().cpu().contiguous() for name, t in tensors.items()}


def _ordered(values: Tensor, name: str, order: Tensor) -> Tensor:
    """A parameter with the components that go between layers in their order."""
    module, kind = name.split(".")[-2:]
    if module in ("query", "key", "value", "inner"):  # read them
        return values[:, order] if kind == "weight" else values.clone()  # a layer may be shared
    return values[order]  # write them, or are a norm
