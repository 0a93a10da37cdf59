"""The variables of a CTranslate2 directory, handed over to a model: each once, none left over."""

from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.relative import Relative
from nmt.errors import Exit, UserError
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import STACKS, weights
from nmt.foreign import CTRANSLATE2_WEIGHTS

IGNORED = ("decoder/alignment_layer", "decoder/alignment_heads")  # what CTranslate2 tells besides


class Parts:
    """The variables of a directory, each to be taken once."""

    def __init__(self, files: CTranslate2Files) -> None:
        self.files, self._left = files, dict(files.variables)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def number(self, name: str, default: int) -> int:
        """Take a scalar."""
        return int(self._left.pop(name, default))

    def tensor(self, name: str) -> Tensor:
        """Take a tensor; UserError (65) where it is missing."""
        self.shape(name)
        return torch.from_numpy(self._left.pop(name).copy())

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that stays to be taken; UserError (65) where it is missing."""
        if name not in self._left:
            raise self.wrong(f"has no {name}")
        return self._left[name].shape

    def wrong(self, what: str) -> UserError:
        """The error for what cannot be read."""
        return UserError(f"{self.files.directory / CTRANSLATE2_WEIGHTS}: {what}", Exit.DATA)

    def layers(self, side: str) -> int:
        """How many layers a side has."""
        names = (name.split("/") for name in self.files.variables)
        return len({part[1] for part in names if part[0] == side and part[1][:6] == "layer_"
                    and part[1] != "layer_norm"})  # fmt: skip

    def refuse_rest(self) -> None:
        """UserError (65) for a variable that nobody took."""
        for name in IGNORED:
            self._left.pop(name, None)
        if self._left:
            raise self.wrong(f"{min(self._left)} has no place in a model of nmt")


def fill(parts: Parts, model: Any, shape: Model, source: list[int], target: list[int]) -> None:
    """Hand the variables over to a model; the rows of embeddings in the order of our ids."""
    for name, order, module in (
        ("encoder/embeddings_0", source, model.source_embedding),
        ("decoder/embeddings", target, model.target_embedding),
    ):
        rows = parts.tensor(f"{name}/weight")
        scaled = parts.number(f"{name.split('/')[0]}/scale_embeddings", 1)
        _copy(parts, name, module.weight, _rows(parts, name, rows, order) / (
            1 if scaled else model.scale))  # fmt: skip
    name = "decoder/projection"
    _copy(
        parts, name, model.output.weight, _rows(parts, name, parts.tensor(f"{name}/weight"), target)
    )
    bias = _bias(parts, name, len(target))
    _copy(parts, name, model.output.bias, _rows(parts, name, bias, target))
    for name, modules in weights(model, shape):
        if isinstance(modules[0], nn.LayerNorm):
            _copy(parts, name, modules[0].weight, parts.tensor(f"{name}/gamma"))
            _copy(parts, name, modules[0].bias, parts.tensor(f"{name}/beta"))
        else:
            _linear(parts, name, *modules)
    for side in STACKS:
        for e in model.sites[side].each():
            if isinstance(e, Relative):
                _relative(parts, side, e)


def _rows(parts: Parts, name: str, table: Tensor, order: list[int]) -> Tensor:
    if len(table) != len(order):
        raise parts.wrong(f"{name} has {len(table)} rows, but the vocabulary {len(order)} pieces")
    return table[order]


def _relative(parts: Parts, side: str, encoding: Relative) -> None:
    """The vectors of each distance, of all layers [layers, 1, 2 tau + 1, head_dim]."""
    tables = {"keys": encoding.key_table, "values": encoding.value_table}
    for role, parameter in tables.items():
        names = [f"{side}/layer_{n}/self_attention/relative_position_{role}"
                 for n in range(parts.layers(side))]  # fmt: skip
        found = torch.stack([parts.tensor(name) for name in names])
        if parameter is not None:  # else values are the keys
            _copy(parts, names[0], parameter, found[:, None])


def _linear(parts: Parts, name: str, *modules: Any) -> None:
    """A linear map, or several of the same input as one; without a bias it is zero."""
    sizes = [module.weight.shape[0] for module in modules]
    weight = parts.tensor(f"{name}/weight")
    if weight.ndim != 2 or len(weight) != sum(sizes):
        raise parts.wrong(f"{name}/weight is {list(weight.shape)}; expected {sum(sizes)} rows")
    bias = _bias(parts, name, sum(sizes))
    for module, w, b in zip(modules, weight.split(sizes), bias.split(sizes), strict=True):
        _copy(parts, name, module.weight, w)
        _copy(parts, name, module.bias, b)


def _bias(parts: Parts, name: str, size: int) -> Tensor:
    return parts.tensor(f"{name}/bias") if f"{name}/bias" in parts else torch.zeros(size)


def _copy(parts: Parts, name: str, parameter: Tensor, values: Tensor) -> None:
    if parameter.shape != values.shape:
        raise parts.wrong(f"{name} is {list(values.shape)}; expected {list(parameter.shape)}")
    parameter.copy_(values)
