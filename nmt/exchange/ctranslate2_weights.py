"""What the variables of a CTranslate2 directory mean: positions, shape, and each weight once."""

from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.relative import Relative
from nmt.encodings.sinusoids import Denominator, Layout, sinusoids
from nmt.exchange import settings
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import ACTIVATIONS, STACKS, weights

SAME = 1e-4  # largest difference of two sinusoids
FROM_ZERO = "decoder/start_from_zero_embedding"  # as Marian's decoders do
PLAIN = (  # variables that decide on what is computed; they must be 0, or absent
    *("encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi"),
    *("decoder/alibi_use_positive_positions", "decoder/scale_alibi"),
    FROM_ZERO,
)


def encoding_of(files: CTranslate2Files) -> list[str]:
    """The overrides that choose the positions of both sides."""
    keys = [
        f"{side}/layer_{number}/self_attention/relative_position_keys"
        for side in STACKS
        for number in range(files.layers(side))
    ]
    variables = files.variables
    if any(key in files for key in keys):
        shapes = {variables[key].shape if key in files else None for key in keys}
        rows = {shape[0] for shape in shapes if shape is not None}
        if len(shapes) > 1 or min(rows) % 2 == 0:
            raise files.wrong("layers whose relative positions differ in number cannot be read")
        tied = all(files.same(key, f"{key[:-4]}values") for key in keys)
        tau = min(rows) // 2
        return ["encoding=relative", f"tau={tau}", f"encoding.relative.tied={tied}".lower()]
    names = [f"{side}/position_encodings/encodings" for side in STACKS]
    if not any(name in files for name in names):
        # OpenNMT-tf: sinusoids that CTranslate2 computes itself, as tensor2tensor did, from 1 on
        return settings.sinusoids("halves", "tensor2tensor", 1)
    table, other = (files.tensor(name).squeeze() for name in names)
    if not torch.equal(table, other):
        raise files.wrong(f"{names[0]} and {names[1]} differ, and should be one table")
    if not table.any():
        return ["encoding=none"]
    at = torch.arange(len(table))
    for layout, denominator, start in product(get_args(Layout), get_args(Denominator), (0, 1)):
        usual = sinusoids(at + start, table.shape[1], layout, denominator)
        if (usual - table).abs().max() <= SAME:
            return settings.sinusoids(layout, denominator, start)
    raise files.wrong(f"{names[0]} holds other positions than sinusoids")


def model_of(files: CTranslate2Files) -> dict[str, Any]:
    """The keys under `model` that the variables and config.json say."""
    for name in PLAIN:
        if number := files.number(name, 0):
            raise files.wrong(f"{name} is {number}; only 0 can be read")
    both = {}
    for key, default in (("pre_norm", 1), ("num_heads", 8), ("activation", 0)):
        numbers = {files.number(f"{stack}/{key}", default) for stack in STACKS}
        if len(numbers) > 1:
            raise files.wrong(f"{key} differs between encoder and decoder")
        both[key] = numbers.pop()
    activation = next((ours for ours, n in ACTIVATIONS.items() if n == both["activation"]), None)
    if activation is None:
        raise files.wrong(f"encoder/activation is {both['activation']}; nmt has no such function")
    dim, inner = (
        files.shape(f"encoder/{name}/weight") for name in ("embeddings_0", "layer_0/ffn/linear_0")
    )
    return {
        "encoder_layers": files.layers("encoder"),
        "decoder_layers": files.layers("decoder"),
        "dim": dim[-1],
        "feedforward_dim": inner[0],
        "heads": both["num_heads"],
        "norm": "pre" if both["pre_norm"] else "post",
        "tie": _tie(files),
        "activation": activation,
        "source_eos": bool(files.config.get("add_source_eos", False)),
    }


def _tie(files: CTranslate2Files) -> str:
    """Which embeddings are one matrix; where they are not scaled, each is kept by itself."""
    source, target = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
    scaled = [int(files.variables.get(f"{s}/scale_embeddings", 1)) for s in STACKS]
    if 0 in scaled or not files.same(target, "decoder/projection/weight"):
        return "none"
    return "all" if files.shared and files.same(source, target) else "target"


def fill(
    files: CTranslate2Files, model: Any, shape: Model, source: list[int], target: list[int]
) -> None:
    """Hand the variables over to a model; the rows of embeddings in the order of our ids."""
    for name, order, module in (
        ("encoder/embeddings_0", source, model.source_embedding),
        ("decoder/embeddings", target, model.target_embedding),
        ("decoder/projection", target, model.output),
    ):
        rows = _rows(files, name, files.tensor(f"{name}/weight"), order)
        if module is not model.output and not files.number(f"{name[:7]}/scale_embeddings", 1):
            rows = rows / model.scale
        _copy(files, name, module.weight, rows)
    bias = _bias(files, name, len(target))
    _copy(files, name, model.output.bias, _rows(files, name, bias, target))
    for name, modules in weights(model, shape):
        if isinstance(modules[0], nn.LayerNorm):
            _copy(files, name, modules[0].weight, files.tensor(f"{name}/gamma"))
            _copy(files, name, modules[0].bias, files.tensor(f"{name}/beta"))
        else:
            _linear(files, name, *modules)
    for side in STACKS:
        for e in model.sites[side]:
            if isinstance(e, Relative):
                _relative(files, side, e)


def _rows(files: CTranslate2Files, name: str, table: Tensor, order: list[int]) -> Tensor:
    if len(table) != len(order):
        raise files.wrong(f"{name} has {len(table)} rows, but the vocabulary {len(order)} pieces")
    return table[order]


def _relative(files: CTranslate2Files, side: str, encoding: Relative) -> None:
    """The vectors of each distance, of all layers [layers, 1, 2 tau + 1, head_dim]."""
    tables = {"keys": encoding.key_table, "values": encoding.value_table}
    for role, parameter in tables.items():
        names = [f"{side}/layer_{n}/self_attention/relative_position_{role}"
                 for n in range(files.layers(side))]  # fmt: skip
        vectors = torch.stack([files.tensor(name) for name in names])
        if parameter is not None:  # else values are the keys
            _copy(files, names[0], parameter, vectors[:, None])


def _linear(files: CTranslate2Files, name: str, *modules: Any) -> None:
    """A linear map, or several of the same input as one; without a bias it is zero."""
    sizes = [module.weight.shape[0] for module in modules]
    weight = files.tensor(f"{name}/weight")
    if weight.ndim != 2 or len(weight) != sum(sizes):
        raise files.wrong(f"{name}/weight is {list(weight.shape)}; expected {sum(sizes)} rows")
    bias = _bias(files, name, sum(sizes))
    for module, w, b in zip(modules, weight.split(sizes), bias.split(sizes), strict=True):
        _copy(files, name, module.weight, w)
        _copy(files, name, module.bias, b)


def _bias(files: CTranslate2Files, name: str, size: int) -> Tensor:
    return files.tensor(f"{name}/bias") if f"{name}/bias" in files else torch.zeros(size)


def _copy(files: CTranslate2Files, name: str, parameter: Tensor, values: Tensor) -> None:
    if parameter.shape != values.shape:
        raise files.wrong(f"{name} is {list(values.shape)}; expected {list(parameter.shape)}")
    parameter.copy_(values)
