"""Marian's files: model.npz with the options in it, and decoder.yml."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from nmt.config.settings import Decode, Model
from nmt.exchange.interface import invalid
from nmt.exchange.settings import fit_keys, warn_of_left_out, warn_of_length_penalty
from nmt.system import manifest

CONFIG = "special:model.yml"
YAML_LIMIT = 1 << 20  # bytes
MOST_UNPACKED = 2  # times the size of an npz: weights hardly become smaller
SHAPE = {  # option -> nmt's key under `model`
    "dim-emb": "dim",
    "enc-depth": "encoder_layers",
    "dec-depth": "decoder_layers",
    "transformer-heads": "heads",
    "transformer-dim-ffn": "feedforward_dim",
    "transformer-ffn-activation": "activation",
}
SIZES = "dim-vocabs"
TIES = {  # option -> model.tie
    "tied-embeddings": "target",
    "tied-embeddings-src": "",
    "tied-embeddings-all": "all",
}
GELU = "that of Marian is x sigmoid(1.702 x), and no other toolkit's"
# options that must have one value; options without effect on translations; options of old versions
FIXED, IGNORED, OLDER = yaml.safe_load(Path(__file__).with_suffix(".yml").read_bytes()).values()
LEFT_OUT = {"word-penalty": 0, "shortlist": [], "n-best": False, "output-sampling": []}


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Read a YAML mapping; UserError (65) for anything else."""
    try:
        if len(data) > YAML_LIMIT or any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(data)):
            raise ValueError  # an alias of aliases would be shown as gigabytes
        values = yaml.safe_load(data)
    except (ValueError, yaml.YAMLError, RecursionError):
        raise invalid(name, "no valid YAML, or one with aliases") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise invalid(name, "expected keys and values")
    return values


def parse_config(array: NDArray[Any], path: Path) -> dict[str, Any]:
    """The options in an npz."""
    return parse(array.tobytes().rstrip(b"\0"), f"{path}: {CONFIG}")  # 1.12.40 pads it


def dump(values: Mapping[str, Any]) -> bytes:
    """YAML of a mapping, in its order."""
    return yaml.safe_dump(dict(values), sort_keys=False, encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, laid out as in torch, and nmt's keys under `model`; else UserError (65)."""
    data = manifest.read_bytes(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if sum(member.file_size for member in file.zip.infolist()) > MOST_UNPACKED * len(data):
                raise ValueError
            arrays = dict(file)
    except Exception:  # numpy raises many kinds for a damaged file
        raise invalid(path, "damaged, or holds more than tensors") from None
    if (config := arrays.pop(CONFIG, None)) is None:
        raise invalid(path, f"has no {CONFIG}; it is no model of Marian")
    for name, array in arrays.items():
        if array.dtype != np.float32:
            advice = "take the model that this one was packed from"
            raise invalid(path, f"{name} is {array.dtype}, not float32; {advice}")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    turned = {name: _turn(name, tensor).squeeze() for name, tensor in tensors.items()}
    return turned, shape_of(path, parse_config(config, path))


def write(tensors: Mapping[str, Tensor], shape: Model, sizes: Sequence[int]) -> bytes:
    """The bytes of a model.npz, the same each time; `sizes`: those of the vocabularies."""
    keys = {option: getattr(shape, key) for option, key in SHAPE.items()}
    ties = {option: shape.tie == tie for option, tie in TIES.items()}
    options = FIXED | IGNORED | keys | ties | {SIZES: [*sizes]}
    arrays: dict[str, Any] = {
        name: _turn(name, t if t.ndim > 1 else t[:, None]).contiguous().numpy()
        for name, t in tensors.items()
    }
    stream = io.BytesIO()
    np.savez(stream, **arrays | {CONFIG: np.frombuffer(dump(options) + b"\0", np.int8)})
    return stream.getvalue()


def _turn(name: str, tensor: Tensor) -> Tensor:
    """From Marian's layout of a matrix to that of torch, and back."""
    return tensor if tensor.ndim < 2 or name.endswith(("Wemb", "Wt")) else tensor.mT


def complete(options: dict[str, Any]) -> dict[str, Any]:
    """Add options that a file leaves out; values equivalent to the default become the default."""
    values = FIXED | IGNORED | options
    return values | {n: v for n, v in FIXED.items() if _plain(n, values) == _plain(n, FIXED)}


def _plain(name: str, options: Mapping[str, Any]) -> Any:
    """The value of an option, in one form for equivalent values."""
    value, encoders = options[name], name.replace("-decoder-", "-")
    if "process" in name:
        return str(value).replace("d", "")  # dropout
    if isinstance(value, list):  # each layer tied with itself, or what each stream holds
        names = ("sequence", "alignment", "weight")
        itself = value == [*range(1, len(value) + 1)]
        return [] if itself else [v for v in value if v not in names]
    return 0 if encoders != name and value == options.get(encoders) else value


def shape_of(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """nmt's keys under `model`; UserError (65) for an unknown or unsupported option."""
    readable = {SIZES, *TIES, *SHAPE, *FIXED, *IGNORED, *OLDER}
    output, source, every = (bool(options.get(name)) for name in TIES)
    for name, value in (options := complete(options)).items():
        if name not in readable or value != FIXED.get(name, value):
            why = f"only {FIXED[name]!r} can be read" if name in FIXED else "an unknown option"
            raise invalid(path, f"{name}={value}: {why}")
    shape = fit_keys(path, Model, {name: (key, options.get(name)) for name, key in SHAPE.items()})
    for name, is_wrong, why in (
        ("tied-embeddings-src", source and not (output or every), "only with tied-embeddings"),
        ("transformer-ffn-activation", shape["activation"] == "gelu", GELU),
        ("transformer-heads", shape["dim"] % shape["heads"] > 0, "must divide dim-emb"),
    ):
        if is_wrong:
            raise invalid(path, f"{name}={options[name]}: {why}")
    tie = "all" if every or source else "target" if output else "none"
    return shape | {"norm": "post", "tie": tie, "target_bos": False}


def search_of(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """nmt's keys under `decode`, from decoder.yml; options without a counterpart are logged."""
    warn_of_left_out(path, options, LEFT_OUT)
    normalize = options.get("normalize", 0.0)  # true or false in early versions
    search = fit_keys(path, Decode, {
        "beam-size": ("beam_size", options.get("beam-size", 12)),
        "normalize": ("alpha", float(normalize) if normalize in (True, False) else normalize),
        "max-length-factor": ("max_length_ratio", options.get("max-length-factor", 3.0)),
    })  # fmt: skip
    search["max_length_offset"] = _offset(search["max_length_ratio"])
    search["unknown"] = "allow" if options.get("allow-unk") else "forbid"
    return {**search, "stop": "shrinking"}


def to_search(decode: Decode) -> dict[str, Any]:
    """Options of marian-decoder for nmt's search settings."""
    decode, factor = decode.by_beam(), decode.max_length_ratio
    warn_of_length_penalty(decode, "Marian")
    return {
        "beam-size": decode.beam_size,
        "normalize": decode.alpha if decode.beam_size > 1 else 0.0,
        "allow-unk": decode.unknown == "allow",
        **({"max-length-factor": factor} if decode.max_length_offset == _offset(factor) else {}),
    }


def _offset(factor: float) -> int:
    """Pieces that Marian's length limit has more, since it counts the eos of the source."""
    return max(1, math.ceil(factor))
