"""The variables of a CTranslate2 directory, handed over to a model: each once, none left over."""

from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.relative import Relative
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import STACKS, weights


def fill(
    files: CTranslate2Files, model: Any, shape: Model, source: list[int], target: list[int]
) -> None:
    """Hand the variables over to a model; the rows of embeddings in the order of our ids."""
    for name, order, module in (
        ("encoder/embeddings_0", source, model.source_embedding),
        ("decoder/embeddings", target, model.target_embedding),
    ):
        rows = files.tensor(f"{name}/weight")
        scaled = files.number(f"{name.split('/')[0]}/scale_embeddings", 1)
        _copy(files, name, module.weight, _rows(files, name, rows, order) / (
            1 if scaled else model.scale))  # fmt: skip
    name = "decoder/projection"
    _copy(
        files, name, model.output.weight, _rows(files, name, files.tensor(f"{name}/weight"), target)
    )
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
