"""The tensors of a Marian model, under our names and in the order of our ids."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt.data.vocab import BOS, PAD, Vocabulary
from nmt.encodings.sinusoids import sinusoids
from nmt.errors import Exit, UserError

# The logit of an id that Marian does not have: its probability is nothing beside any other, and the
# share of it that label smoothing adds to a loss, when training goes on, is next to nothing, too.
NEVER = -100.0
TABLE_ERROR = 1e-4  # of stored sinusoids: some were computed in float32, up to position 512
_SHARED = "shared.weight"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT = "lm_head.weight"
MATRICES: dict[
    str, dict[str, tuple[str, ...]]
] = {  # model.tie -> our name of each matrix -> under which of theirs it may stand
    "all": {"source_embedding": (_SHARED, _SOURCE, _TARGET, OUTPUT)},
    "target": {"source_embedding": (_SOURCE,), "target_embedding": (_TARGET, OUTPUT)},
    "none": {
        "source_embedding": (_SOURCE,),
        "target_embedding": (_TARGET,),
        "output": (OUTPUT,),
    },
}
_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
MODULES = {
    **{f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "around_attention.norm",
    **{f"encoder_attn.{theirs}": f"cross.{ours}" for theirs, ours in _ATTENTION.items()},
    "encoder_attn_layer_norm": "around_cross.norm",
    "fc1": "feedforward.inner",
    "fc2": "feedforward.outer",
    "final_layer_norm": "around_feedforward.norm",
}  # of a layer: their name -> ours


class Numbering(NamedTuple):
    """The ids of one side."""

    vocabulary: Vocabulary
    order: list[int]  # of each of our ids but PAD and BOS: theirs
    pad: int  # their id of it

    def rows(self, table: Tensor) -> Tensor:
        """The rows of their table [ids, ...] in our order; that of BOS is their pad's."""
        zero = torch.zeros_like(table[:1])
        return torch.cat([zero, table[self.theirs]])

    @property
    def theirs(self) -> list[int]:
        """Their id of each of ours from BOS on."""
        return [self.pad, *self.order]

    def of(self, ids: Iterable[int]) -> list[int]:
        """Their ids of ours from BOS on."""
        return [self.theirs[i - BOS] for i in ids]

    def ours(self, ids: Iterable[int]) -> list[int]:
        """Our ids of theirs; their pad becomes BOS."""
        numbers = {number: place for place, number in enumerate(self.theirs, start=BOS)}
        return [numbers[number] for number in ids]


def read(directory: Path) -> dict[str, Tensor]:
    """The weights, in float32; from pytorch_model.bin only by torch's loader that runs no code."""
    safe, pickled = directory / "model.safetensors", directory / "pytorch_model.bin"
    where = safe if safe.exists() else pickled
    try:
        if where == safe:
            tensors: Any = safetensors.torch.load(safe.read_bytes())
        else:
            tensors = torch.load(pickled, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{where}: {error.strerror}; it is incomplete", Exit.DATA) from None
    except Exception as error:  # of a damaged file torch raises whatever it comes upon
        if not isinstance(error, SafetensorError) and where == safe:
            raise
        raise UserError(f"{where}: damaged, or holds more than tensors", Exit.DATA) from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise UserError(f"{where}: expected names of tensors", Exit.DATA)
    if wrong := [n for n, t in tensors.items() if not torch.isfinite(t).all()]:
        raise UserError(f"{where}: {wrong[0]} holds numbers that are not finite", Exit.DATA)
    return {name: tensor.float() for name, tensor in tensors.items()}


def take_positions(directory: Path, tensors: dict[str, Tensor], dim: int) -> None:
    """Take the tables of positions away; UserError (65) unless they are the usual sinusoids."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if (table := tensors.pop(name, None)) is None:
            continue
        usual = sinusoids(torch.arange(len(table)), dim, layout="halves")
        if table.shape != usual.shape or (table - usual).abs().max() > TABLE_ERROR:
            raise UserError(f"{directory}: {name} holds other positions than sinusoids", Exit.DATA)


def renamed(
    directory: Path, tensors: Mapping[str, Tensor], tie: str, source: Numbering, target: Numbering
) -> dict[str, Tensor]:
    """The tensors under our names; UserError (65) for one that has no place, or is missing."""
    matrices: dict[str, Tensor] = {}
    ours: dict[str, Tensor] = {}
    bias = torch.zeros(len(target.theirs))
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        stack, _, rest = short.partition(".layers.")
        number, _, inner = rest.partition(".")
        module, _, kind = inner.rpartition(".")
        if module in MODULES and stack in ("encoder", "decoder"):
            ours[f"{stack}.layers.{number}.{MODULES[module]}.{kind}"] = tensor
        elif short in (_SHARED, _SOURCE, _TARGET, OUTPUT):
            matrices[short] = tensor
        elif name == "final_logits_bias":
            bias = tensor.flatten()
        else:
            raise UserError(
                f"{directory}: the tensor {name}, {list(tensor.shape)}, has no place in the model "
                "that config.json describes",
                Exit.DATA,
            )
    for name, theirs in MATRICES[tie].items():
        side = source if name == "source_embedding" else target
        table = _matrix(directory, matrices, theirs)
        _check_rows(directory, theirs[0], len(table), side)
        ours[f"{name}.weight"] = side.rows(table)
    _check_rows(directory, "final_logits_bias", len(bias), target)
    ours["output.bias"] = target.rows(bias)
    ours["output.bias"][PAD] = NEVER
    return ours


def _check_rows(directory: Path, name: str, rows: int, side: Numbering) -> None:
    if rows != len(side.theirs):
        raise UserError(
            f"{directory}: the vocabulary has {len(side.theirs)} pieces, but {name} {rows} rows",
            Exit.DATA,
        )


def _matrix(directory: Path, given: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    """One matrix, which may stand under several names."""
    there = [name for name in names if name in given]
    if not there:
        raise UserError(f"{directory}: has no {names[0]}; it is incomplete", Exit.DATA)
    if not all(torch.equal(given[there[0]], given[other]) for other in there[1:]):
        raise UserError(
            f"{directory}: {', '.join(there)} differ, and should be one matrix", Exit.DATA
        )
    return given[there[0]]
