"""What the variables of a CTranslate2 directory mean: positions, shape, and each weight once."""

from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from nmt.config.settings import Settings
from nmt.encodings.sinusoids import Denominator, Layout, sinusoids
from nmt.exchange import settings
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import ACTIVATIONS, STACKS, modules

SAME = 1e-4  # largest difference of two sinusoids
TIED = {  # model.tie -> matrices of ours that are another one
    "none": (),
    "target": ("output",),
    "all": ("target_embedding", "output"),
}
FROM_ZERO = "decoder/start_from_zero_embedding"  # as Marian's decoders do
PLAIN = (  # variables that decide on what is computed; they must be 0, or absent
    *("encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi"),
    *("decoder/alibi_use_positive_positions", "decoder/scale_alibi"),
)


def encoding_of(files: CTranslate2Files) -> list[str]:
    """The overrides that choose the positions of both sides."""
    keys = [
        f"{side}/layer_{number}/self_attention/relative_position_keys"
        for side in STACKS
        for number in range(files.layers(side))
    ]
    variables = files.variables
    if any(key in variables for key in keys):
        shapes = {variables[key].shape if key in variables else (0,) for key in keys}
        rows = min(shapes)[0]
        if len(shapes) > 1 or rows % 2 == 0:
            raise files.wrong("layers whose relative positions differ in number cannot be read")
        tied = all(files.same(key, f"{key[:-4]}values") for key in keys)
        return ["encoding=relative", f"tau={rows // 2}", f"encoding.relative.tied={tied}".lower()]
    names = [f"{side}/position_encodings/encodings" for side in STACKS]
    if not any(name in variables for name in names):
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


def tensors_of(
    files: CTranslate2Files, settings: Settings, source: list[int], target: list[int]
) -> dict[str, Tensor]:
    """The variables under our names; the rows of embeddings in the order of our ids."""
    shape, ours = settings.model, dict[str, Tensor]()
    for name, module, order in (
        ("encoder/embeddings_0", "source_embedding", source),
        ("decoder/embeddings", "target_embedding", target),
        ("decoder/projection", "output", target),
    ):
        rows = _rows(files, name, files.tensor(f"{name}/weight"), order)
        if module != "output" and not files.number(f"{name[:7]}/scale_embeddings", 1):
            rows = rows / shape.dim**0.5
        ours[f"{module}.weight"] = rows
    ours["output.bias"] = _rows(files, name, _bias(files, name, len(target)), target)
    for module in TIED[shape.tie]:
        del ours[f"{module}.weight"]
    for name, held in modules(shape):
        if name.endswith("layer_norm"):
            ours[f"{held[0]}.weight"] = files.tensor(f"{name}/gamma")
            ours[f"{held[0]}.bias"] = files.tensor(f"{name}/beta")
            continue
        weight = files.tensor(f"{name}/weight")
        parts = weight.chunk(len(held)), _bias(files, name, len(weight)).chunk(len(held))
        for module, w, b in zip(held, *parts, strict=False):  # sizes are compared later
            ours |= {f"{module}.weight": w, f"{module}.bias": b}
    for side in STACKS if "relative" in settings.encoding else ():
        ours |= _relative(files, side, bool(settings.encoding["relative"]["tied"]))
    return ours


def _rows(files: CTranslate2Files, name: str, table: Tensor, order: list[int]) -> Tensor:
    if len(table) != len(order):
        raise files.wrong(f"{name} has {len(table)} rows, but the vocabulary {len(order)} pieces")
    return table[order]


def _bias(files: CTranslate2Files, name: str, size: int) -> Tensor:
    """That of a linear map; without one it is zero."""
    return files.tensor(f"{name}/bias") if f"{name}/bias" in files.variables else torch.zeros(size)


def _relative(files: CTranslate2Files, side: str, tied: bool) -> dict[str, Tensor]:
    """The vectors of each distance, of all layers [layers, 1, 2 tau + 1, head_dim]."""
    layers = [f"{side}/layer_{n}/self_attention" for n in range(files.layers(side))]
    keys, values = (
        torch.stack([files.tensor(f"{layer}/relative_position_{role}") for layer in layers])[
            :, None
        ]
        for role in ("keys", "values")
    )
    place = f"{side}_encodings.entries.0"
    return {f"{place}.key_table": keys} | ({} if tied else {f"{place}.value_table": values})
