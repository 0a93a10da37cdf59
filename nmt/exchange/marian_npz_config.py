"""The options of a Marian model, in its npz, and those of its decoder, in decoder.yml."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config import Decode, Model
from nmt.errors import Exit, UserError
from nmt.exchange import marian_npz, transformers_config
from nmt.exchange.transformers_config import MarianConfig
from nmt.schema import knob

log = logging.getLogger(__name__)
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
LEFT_OUT = ("word-penalty", "max-length-factor", "shortlist", "n-best")  # of decoder.yml


@dataclass
class Search:
    """How a model is to be decoded, with the defaults of marian-decoder."""

    beam_size: int = knob("hypotheses kept", least=1, most=1000, absent=12)
    normalize: float = knob("exponent of the length", least=0, most=10, absent=0.0)
    allow_unk: bool = knob("<unk> in translations", absent=False)


def read_options(where: Path, options: Mapping[str, Any]) -> MarianConfig:
    """The options of a model as Hugging Face has them.

    UserError (65) for one that would make the model compute something else.
    """
    for key, (value, why) in FIXED.items():
        if options.get(key, value) != value:
            raise UserError(f"{where}: {key}={options[key]}: {why}", Exit.DATA)
    if options.get(key := "transformer-ffn-activation") == "gelu":
        raise UserError(f"{where}: {key}=gelu: {GELU}", Exit.DATA)
    ties = {key: bool(options.get(f"tied-embeddings{key}")) for key in ("", "-src", "-all")}
    values = {
        **{key: options.get(option) for option, keys in SHAPE.items() for key in keys},
        "model_type": "marian",
        "scale_embedding": True,
        "decoder_start_token_id": 0,
        "max_position_embeddings": 2,
        "share_encoder_decoder_embeddings": ties["-src"] or ties["-all"],
        "tie_word_embeddings": ties[""] or ties["-all"],
    }
    return transformers_config.checked(MarianConfig, where, values)


def read_search(where: Path, values: Mapping[str, Any]) -> Search:
    """How a model is decoded; what has no counterpart here is logged."""
    if left_out := [f"{key}={values[key]}" for key in LEFT_OUT if values.get(key)]:
        log.warning("%s: not taken over: %s; the keys under decode. have their own values",
                    where, ", ".join(left_out))  # fmt: skip
    named = {key.replace("-", "_"): value for key, value in values.items()}
    return transformers_config.checked(Search, where, named)


def to_options(shape: Model, sizes: Sequence[int]) -> dict[str, Any]:
    """The options of a model of ours, whose vocabularies have these sizes."""
    file, ours = Path(__file__).with_name("marian_npz.yml"), transformers_config.SHAPE
    return marian_npz.parse(file.read_bytes(), file.name) | {
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
