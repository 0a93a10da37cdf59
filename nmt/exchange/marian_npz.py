"""Marian's own files: model.npz, the YAML in it and beside it; and the names of its tensors."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import yaml
from torch import Tensor

from nmt.config.check import Between, key
from nmt.config.settings import Decode, Model
from nmt.encodings.sinusoids import Denominator, Layout, sinusoids
from nmt.errors import Exit, UserError
from nmt.exchange import marian_weights, transformers_config
from nmt.system import manifest

CONFIG = "special:model.yml"
YAML_LIMIT = 1 << 20  # bytes
MOST_UNPACKED = 2  # times the size of an npz: weights hardly become smaller
SINUSOIDS: tuple[Layout, Denominator, int] = ("halves", "tensor2tensor", 0)  # and their start
SHAPE = {  # option -> keys of config.json of Hugging Face
    "dim-emb": ("d_model",),
    "enc-depth": ("encoder_layers",),
    "dec-depth": ("decoder_layers",),
    "transformer-heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "transformer-dim-ffn": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "transformer-ffn-activation": ("activation_function",),
}
GELU = "that of Marian is x sigmoid(1.702 x), and no other toolkit's"
_NORMS = "only norms after the sublayers can be read"
FIXED: dict[str, tuple[Any, str]] = {  # option -> what it must be, and is where it is absent; why
    "type": ("transformer", "another family of models"),
    "transformer-decoder-autoreg": (
        "self-attention",
        "SSRU and averages cannot be read, as Firefox's small models have them; the teachers of "
        "such models mostly have attention",
    ),
    "transformer-train-position-embeddings": (False, "only sinusoids can be read"),
    "transformer-preprocess": ("", _NORMS),
    "transformer-postprocess": ("dan", _NORMS),
    "transformer-postprocess-top": ("", _NORMS),
    "transformer-tied-layers": ([], "layers that share weights cannot be read"),
    "lemma-dim-emb": (0, "factors cannot be read"),
    "right-left": (False, "only outputs from left to right can be read"),
}
LEFT_OUT = {"word-penalty": 0, "max-length-factor": 0, "shortlist": [], "n-best": False}


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Read a YAML mapping; UserError (65) for anything else."""
    try:
        if len(data) > YAML_LIMIT or any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(data)):
            raise ValueError  # an alias of aliases would be shown as gigabytes
        values = yaml.safe_load(data)
    except (ValueError, yaml.YAMLError, RecursionError):
        raise UserError(f"{where}: no valid YAML, or one with aliases", Exit.DATA) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{where}: expected keys and values", Exit.DATA)
    return values


def dump(values: Mapping[str, Any]) -> bytes:
    """YAML of a mapping, in its order."""
    return yaml.safe_dump(dict(values), sort_keys=False, encoding="utf-8")


def read(where: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, laid out as in torch, and the model's options; UserError (65) for others."""
    data = manifest.read_bytes(where)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if sum(member.file_size for member in file.zip.infolist()) > MOST_UNPACKED * len(data):
                raise ValueError
            arrays = {name: file[name] for name in file.files}
    except Exception:  # of a damaged file numpy raises whatever it comes upon
        raise UserError(f"{where}: damaged, or holds more than tensors", Exit.DATA) from None
    if (config := arrays.pop(CONFIG, None)) is None:
        raise UserError(f"{where}: has no {CONFIG}; it is no model of Marian", Exit.DATA)
    for name, array in arrays.items():
        if array.dtype != np.float32:
            raise UserError(
                f"{where}: {name} is {array.dtype}, not float32; models that are packed into "
                "fewer bits cannot be read: take the one that they were made of",
                Exit.DATA,
            )
    options = parse(config.tobytes().rstrip(b"\0"), f"{where}: {CONFIG}")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    checked = marian_weights.checked(where, tensors)
    return {name: _turned(name, tensor).squeeze() for name, tensor in checked.items()}, options


def write(tensors: Mapping[str, Tensor], options: Mapping[str, Any]) -> bytes:
    """The bytes of a model.npz, always the same for the same model."""
    text = dump(options) + b"\0"
    arrays: dict[str, Any] = {
        name: _turned(name, t if t.ndim > 1 else t[:, None]).contiguous().numpy()
        for name, t in tensors.items()
    }
    stream = io.BytesIO()
    np.savez(stream, **arrays | {CONFIG: np.frombuffer(text, np.int8)})
    return stream.getvalue()


def _turned(name: str, tensor: Tensor) -> Tensor:
    """From Marian's layout of a matrix to that of torch, and back; vectors are [1, n] there."""
    return tensor if tensor.ndim < 2 or name.endswith(("Wemb", "Wt")) else tensor.mT


def positions(count: int, dim: int) -> Tensor:
    """The sinusoids that Marian adds [count, dim].

    The converters of transformers and CTranslate2 take those of the paper instead, whose
    frequencies are others.
    """
    return sinusoids(torch.arange(count), dim, *SINUSOIDS[:2])


@dataclass
class Search:
    """How a model is to be decoded, with the defaults of marian-decoder."""

    beam_size: Annotated[int, Between(1, 1000)] = key(12, "hypotheses kept")
    normalize: Annotated[float, Between(0, 10)] = key(0.0, "exponent of the length")
    allow_unk: bool = key(False, "<unk> in translations")


def read_options(where: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under `model` of our settings, by the options of a model.

    UserError (65) for one that would make the model compute something else.
    """
    for name, (value, why) in FIXED.items():
        if options.get(name, value) != value:
            raise UserError(f"{where}: {name}={options[name]}: {why}", Exit.DATA)
    if options.get(key := "transformer-ffn-activation") == "gelu":
        raise UserError(f"{where}: {key}=gelu: {GELU}", Exit.DATA)
    ties = {key: bool(options.get(f"tied-embeddings{key}")) for key in ("", "-src", "-all")}
    values = {
        **{key: options.get(option) for option, keys in SHAPE.items() for key in keys},
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": ties["-src"] or ties["-all"],
        "tie_word_embeddings": ties[""] or ties["-all"],
    }
    return transformers_config.to_shape(where, values)


def read_search(where: Path, values: Mapping[str, Any]) -> Search:
    """How a model is decoded; what has no counterpart here is logged."""
    transformers_config.warn_of_others(where, values, LEFT_OUT)
    named = {key.replace("-", "_"): value for key, value in values.items()}
    return transformers_config.checked(Search, where, named)


def to_options(shape: Model, sizes: Sequence[int]) -> dict[str, Any]:
    """The options of a model of ours, whose vocabularies have these sizes."""
    file, ours = Path(__file__).with_name("marian_npz.yml"), transformers_config.SHAPE
    return parse(file.read_bytes(), file.name) | {
        **{option: getattr(shape, ours[keys[0]]) for option, keys in SHAPE.items()},
        "dim-vocabs": [*sizes],
        "tied-embeddings": shape.tie == "target",
        "tied-embeddings-all": shape.tie == "all",
    }


def to_search(decode: Decode) -> dict[str, Any]:
    """The options of marian-decoder, as far as it has ours."""
    decode = decode.by_beam()
    transformers_config.warn_of_length_penalty(decode, "Marian")
    return {
        "beam-size": decode.beam_size,
        "normalize": decode.alpha if decode.beam_size > 1 else 0.0,
        "allow-unk": decode.unknown == "allow",
    }
