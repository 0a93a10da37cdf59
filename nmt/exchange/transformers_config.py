"""config.json and generation_config.json of Hugging Face, as far as they decide on outputs."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from nmt.config import check
from nmt.config.check import OPEN, Between, NonNegativeFloat, NonNegativeInt, PositiveInt, key
from nmt.config.settings import Decode, Model
from nmt.decode.torch_engine import FORBIDDEN
from nmt.encodings.sinusoids import Denominator, Layout
from nmt.errors import Exit, UserError
from nmt.exchange.marian_ids import ABSENT, MarianIds
from nmt.system import manifest
from nmt.text.vocab import UNK

log = logging.getLogger(__name__)
T = TypeVar("T")
PAD, EOS = 1, 2  # ids of M2M100 and NLLB
SHAPE = {  # key of config.json -> ours, under `model`
    "activation_dropout": "feedforward_dropout",
    "activation_function": "activation",
    "attention_dropout": "attention_dropout",
    "d_model": "dim",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "feedforward_dim",
    "decoder_ffn_dim": "feedforward_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "dropout": "dropout",
}
UNSHARED: dict[str, Any] = {  # keys of generation_config.json, and what asks for nothing
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "min_length": 0,
    "do_sample": False,
    "bad_words_ids": [],
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "min_new_tokens"), 0),
    **dict.fromkeys(("encoder_repetition_penalty", "num_beam_groups"), 1),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id")),
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty")),
}
FIXED = {  # what is so in each model of the family
    "architectures": ["MarianMTModel"],
    "dtype": "float32",
    "is_encoder_decoder": True,
    "use_cache": True,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
}


@dataclass
class MarianConfig:
    """The keys of config.json that decide on what the model computes, as `read` takes them."""

    SINUSOIDS: ClassVar[tuple[Layout, Denominator, int]] = ("halves", "paper", 0)  # and their start
    model_type: Literal["marian"] = key(OPEN, "the family of models")
    scale_embedding: Literal[True] = key(OPEN, "embeddings times the root of d_model")
    d_model: Annotated[int, Between(2)] = key(OPEN, "width")
    encoder_layers: Annotated[int, Between(1, 256)] = key(OPEN, "layers of the encoder")
    decoder_layers: Annotated[int, Between(1, 256)] = key(OPEN, "layers of the decoder")
    encoder_attention_heads: PositiveInt = key(OPEN, "attention heads")
    decoder_attention_heads: PositiveInt = key(OPEN, "the same number")
    encoder_ffn_dim: PositiveInt = key(OPEN, "inner width of the feed-forward sublayers")
    decoder_ffn_dim: PositiveInt = key(OPEN, "the same number")
    activation_function: Literal["swish", "silu", "relu", "gelu"] = key(OPEN, "between their maps")
    dropout: Annotated[float, Between(0, 0.99)] = key(0.1, "on embeddings and sublayer outputs")
    attention_dropout: Annotated[float, Between(0, 0.99)] = key(0.0, "on attention")
    activation_dropout: Annotated[float, Between(0, 0.99)] = key(0.0, "in feed-forward sublayers")
    decoder_start_token_id: NonNegativeInt = key(OPEN, "the id that starts the decoder")
    share_encoder_decoder_embeddings: bool = key(True, "one matrix for both sides")
    tie_word_embeddings: bool = key(True, "the output has the target's matrix")
    normalize_before: Literal[False] = key(False, "pre-norm")
    normalize_embedding: Literal[False] = key(False, "a norm above embeddings")
    add_final_layer_norm: Literal[False] = key(False, "a norm above the stacks")
    static_position_embeddings: Literal[True] = key(True, "sinusoids")
    extra_pos_embeddings: Annotated[int, Between(most=0)] = key(0, "rows before the first position")
    quantization_config: Literal[False] = key(False, "quantised weights")

    def __post_init__(self) -> None:
        if self.decoder_attention_heads != self.encoder_attention_heads:
            raise UserError("decoder_attention_heads: must be as many as in the encoder")
        if self.decoder_ffn_dim != self.encoder_ffn_dim:
            raise UserError("decoder_ffn_dim: must be that of the encoder")
        if self.d_model % self.encoder_attention_heads:
            raise UserError("encoder_attention_heads: must divide d_model")
        if self.share_encoder_decoder_embeddings and not self.tie_word_embeddings:
            raise UserError(
                "tie_word_embeddings=false: where both sides share a matrix, the output does"
            )

    def shape(self) -> dict[str, Any]:
        """The keys under `model` of our settings."""
        values = {ours: getattr(self, theirs) for theirs, ours in SHAPE.items()}
        if values["activation"] == "silu":
            values["activation"] = "swish"
        tie = "target" if self.tie_word_embeddings else "none"
        return values | {
            "norm": "post",
            "tie": "all" if self.share_encoder_decoder_embeddings else tie,
        }


@dataclass
class M2M100Config(MarianConfig):
    """The same of M2M100 and NLLB, where it differs."""

    SINUSOIDS = ("halves", "tensor2tensor", 2)
    model_type: Literal["m2m_100"] = key(  # type: ignore[assignment]
        OPEN, "the family of models"
    )
    vocab_size: Annotated[int, Between(4)] = key(OPEN, "rows of the embedding")
    pad_token_id: Annotated[int, Between(PAD, PAD)] = key(PAD, "the id of padding")
    eos_token_id: Annotated[int, Between(EOS, EOS)] = key(EOS, "the id that ends a line")
    decoder_start_token_id: Annotated[int, Between(EOS, EOS)] = key(EOS, "starts the decoder")
    normalize_before: Literal[True] = key(  # type: ignore[assignment]
        True, "pre-norm"
    )
    add_final_layer_norm: Literal[True] = key(  # type: ignore[assignment]
        True, "a norm above the stacks"
    )

    def shape(self) -> dict[str, Any]:
        """The keys under `model` of our settings."""
        return super().shape() | {"norm": "pre", "tie": "all"}


@dataclass
class Generation:
    """The default decoding of the model, as transformers reads it."""

    num_beams: PositiveInt = key(1, "hypotheses kept")
    length_penalty: NonNegativeFloat = key(1.0, "exponent of the length")
    unknown: Literal["forbid", "allow"] = key(OPEN, "decode.unknown, by bad_words_ids")


def to_config(shape: Model, source: MarianIds, target: MarianIds, positions: int) -> dict[str, Any]:
    """The keys of config.json for a model of ours."""
    return FIXED | {
        **{theirs: getattr(shape, ours) for theirs, ours in SHAPE.items()},
        "share_encoder_decoder_embeddings": shape.tie == "all",
        "tie_word_embeddings": shape.tie != "none",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "max_position_embeddings": positions,
        **special(target),
    }


def to_m2m100_config(
    shape: Model, source: MarianIds, target: MarianIds, positions: int
) -> dict[str, Any]:
    """The same for M2M100 and NLLB."""
    values = to_config(shape, source, target, positions)
    for name in ("decoder_vocab_size", "share_encoder_decoder_embeddings", "normalize_embedding"):
        del values[name]
    return values | {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "bos_token_id": 0,
        "normalize_before": True,
        "add_final_layer_norm": True,
    }


def to_generation(decode: Decode, target: MarianIds, positions: int) -> dict[str, Any]:
    """The default decoding of transformers: our settings, as far as it has them."""
    warn_of_length_penalty(decode, "transformers")
    return {
        "bad_words_ids": target.never(FORBIDDEN[decode.unknown]),
        "max_length": positions,
        "num_beams": decode.beam_size,
        **({"length_penalty": decode.alpha} if decode.beam_size > 1 else {}),
        **special(target),
    }


def warn_of_length_penalty(decode: Decode, engine: str) -> None:
    """Log that an engine divides by another function of the length than nmt, if it does."""
    if decode.beam_size > 1 and decode.length_penalty != "power" and decode.alpha:
        log.warning(
            "decode.length_penalty=%s: %s divides by length ** %g instead",
            decode.length_penalty, engine, decode.alpha,
        )  # fmt: skip


def special(target: MarianIds) -> dict[str, int]:
    """The ids that both files name."""
    pad = target.start if target.pad == ABSENT else target.pad
    ids = {"decoder_start_token_id": target.start, "pad_token_id": pad}
    return ids | {"eos_token_id": target.order[0], "forced_eos_token_id": target.order[0]}


def read_generation(directory: Path, target: MarianIds) -> Generation:
    """Read generation_config.json, or of older models config.json; UserError (65) if damaged."""
    where = directory / "generation_config.json"
    where = where if where.exists() else directory / "config.json"
    values = manifest.read(where, None)
    never = values.get("bad_words_ids") or []
    never = never if isinstance(never, list) else [never]
    unknown = "forbid" if target.of([UNK]) in never else "allow"
    ours = target.never(FORBIDDEN[unknown])
    values |= {"bad_words_ids": [ids for ids in never if ids not in ours]}
    warn_of_others(where, values, UNSHARED)
    return checked(Generation, where, values | {"unknown": unknown})


def warn_of_others(where: Path, values: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Log what a file asks of a search that is not taken over; `usual`: what asks for nothing."""
    if found := [f"{k}={values[k]}" for k, v in usual.items() if values.get(k, v) not in (v, None)]:
        log.warning("%s: not taken over: %s; the keys under decode. have their own values",
                    where, ", ".join(found))  # fmt: skip


def read(kind: type[T], where: Path) -> T:
    """The keys of a file that a schema declares, less those without a value; UserError (65)."""
    return checked(kind, where, manifest.read(where, None))


def checked(kind: type[T], where: Path, values: Mapping[str, Any]) -> T:
    """Those keys of the values of a file."""
    known = {k: v for k, v in values.items() if k in check.keys_of(kind) and v is not None}
    try:
        return check.read(kind, known)
    except UserError as error:
        what = str(error).partition(";")[0]  # the advice is for a command line
        raise UserError(f"{where}: {what}; no other model can be read", Exit.DATA) from None
