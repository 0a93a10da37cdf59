"""config.json and generation_config.json of Hugging Face, as far as they decide on outputs."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from nmt.config import check
from nmt.config.settings import Decode, Model
from nmt.decode.torch_engine import FORBIDDEN
from nmt.encodings.sinusoids import Denominator, Layout
from nmt.errors import Exit, UserError
from nmt.exchange.marian_ids import ABSENT, MarianIds
from nmt.text.vocab import UNK

log = logging.getLogger(__name__)
T = TypeVar("T")
# layout, denominator and first position
MARIAN_SINUSOIDS: tuple[Layout, Denominator, int] = ("halves", "paper", 0)
M2M100_SINUSOIDS: tuple[Layout, Denominator, int] = ("halves", "tensor2tensor", 2)
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
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0),
    **dict.fromkeys(("min_length", "min_new_tokens", "do_sample"), 0),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "num_beam_groups"), 1),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id")),
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty")),
    "bad_words_ids": [],
}


def to_shape(where: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under `model` of our settings, by those of a config.json.

    UserError (65) for what would make the model compute something else. What transformers ignores,
    such as extra_pos_embeddings and normalize_before, is ignored.
    """
    shape: dict[str, Any] = {"norm": "post"}
    for theirs, ours in SHAPE.items():
        value = values.get(theirs)
        value = "swish" if value == "silu" else value
        if value is None and "dropout" not in theirs:
            raise _refusal(where, f"{theirs}: has no value")
        if shape.setdefault(ours, value) != value:
            raise _refusal(where, f"{theirs}: must be that of the encoder")
    share, tie = values.get("share_encoder_decoder_embeddings"), values.get("tie_word_embeddings")
    shape["tie"] = "all" if share else "target" if tie else "none"
    model = checked(Model, where, shape)
    if model.dim % model.heads:
        raise _refusal(where, "encoder_attention_heads: must divide d_model")
    if values.get("scale_embedding") is not True:
        raise _refusal(where, f"scale_embedding={values.get('scale_embedding')}: must be true")
    if values.get("quantization_config"):
        raise _refusal(where, "quantization_config: quantised weights")
    if share and not tie:
        why = "where both sides share a matrix, the output does"
        raise _refusal(where, f"tie_word_embeddings=false: {why}")
    return {key: getattr(model, key) for key in shape}


def to_config(shape: Model, source: MarianIds, target: MarianIds, positions: int) -> dict[str, Any]:
    """The keys of MarianConfig for a model of ours."""
    return {
        **{theirs: getattr(shape, ours) for theirs, ours in SHAPE.items()},
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": shape.tie == "all",
        "tie_word_embeddings": shape.tie != "none",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "max_position_embeddings": positions,
        **special(target),
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


def read_search(where: Path, values: Mapping[str, Any], target: MarianIds) -> list[str]:
    """The overrides for the default decoding of a model; what is not taken over is logged."""
    never = values.get("bad_words_ids") or []
    never = never if isinstance(never, list) else [never]
    unknown = "forbid" if target.of([UNK]) in never else "allow"
    ours = target.never(FORBIDDEN[unknown])
    others = [ids for ids in never if ids not in ours]
    warn_of_others(where, {**values, "bad_words_ids": others}, UNSHARED)
    beam, alpha = (values[key] for key in ("num_beams", "length_penalty"))
    chosen = {"beam_size": 1 if beam is None else beam, "alpha": 1.0 if alpha is None else alpha}
    return [f"decode.{key}={value}" for key, value in {**chosen, "unknown": unknown}.items()]


def warn_of_others(where: Path, values: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Log what a file asks of a search that is not taken over; `usual`: what asks for nothing."""
    if found := [f"{k}={values[k]}" for k, v in usual.items() if values.get(k, v) not in (v, None)]:
        log.warning("%s: not taken over: %s; the keys under decode. have their own values",
                    where, ", ".join(found))  # fmt: skip


def checked(kind: type[T], where: Path, values: Mapping[str, Any]) -> T:
    """The keys of a schema among the values of a file, less those without a value."""
    known = {k: v for k, v in values.items() if k in check.keys_of(kind) and v is not None}
    try:
        return check.read(kind, known)
    except UserError as error:
        raise _refusal(where, str(error).partition(";")[0]) from None  # less advice


def _refusal(where: Path, what: str) -> UserError:
    return UserError(f"{where}: {what}; no other model can be read", Exit.DATA)
