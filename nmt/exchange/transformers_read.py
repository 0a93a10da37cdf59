"""Read models of Hugging Face: Marian (OPUS-MT), M2M100 and NLLB.

The classes of transformers read the files; here their tensors become ours. A setting with which the
model would compute something else is refused by name. `trained_length`: pieces of the longest
source in training; None: unknown, since the size of the table of positions does not tell.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config.settings import Model
from nmt.decode.torch_engine import FORBIDDEN
from nmt.errors import UserError
from nmt.exchange import m2m100_tokens, marian_ids, marian_weights, transformers_engine
from nmt.exchange.export_engines import M2M100, MARIAN
from nmt.exchange.interface import TRANSFORMERS, Imported, invalid
from nmt.exchange.m2m100_tokens import MADE_UP, SPM
from nmt.exchange.marian_ids import ABSENT, MarianIds
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT
from nmt.exchange.settings import (
    UNNAMED,
    fit_keys,
    in_order,
    make_trained,
    sentencepiece,
    settings_of,
    warn_of_others,
)
from nmt.exchange.transformers_engine import (
    GENERATION,
    PIECES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TransformersScorer,
    language_id,
)
from nmt.modeldir import CONFIG, in_file
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram
from nmt.text.vocab import UNK

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
UNSHARED: dict[str, Any] = {  # unsupported keys of generation_config.json -> without effect
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0),
    **dict.fromkeys(("min_length", "min_new_tokens", "do_sample"), 0),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "num_beam_groups"), 1),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id")),
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty", "max_length")),
    "bad_words_ids": [],
}
log = logging.getLogger(__name__)
MOST_MADE_UP = 1000  # rows without a piece; NLLB has 2, M2M100 8, and some are rounded up
TABLE_ERROR = 0.0021  # of stored sinusoids: numbers up to 1, rounded to bfloat16 by 0.00195 at most


def marian(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a Marian model with its segmenters."""
    models = "source.spm", "target.spm"
    transformers_engine.check(directory, (CONFIG, PIECES, *models))
    tokenizer = transformers_engine.open_tokenizer(directory)
    languages = [str(name or UNNAMED) for name in (tokenizer.source_lang, tokenizer.target_lang)]
    segmenters = [
        sentencepiece(MarianSegmenter, directory / name, language)
        for name, language in zip(models, languages, strict=True)
    ]
    return _imported(directory, tokenizer, segmenters, {}, languages, trained_length)


def m2m100(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read an M2M100 or NLLB model with its segmenter.

    `languages`: of source and target; None: those of the tokenizer's config.
    """
    has_model = (directory / PIECES).exists() or (directory / SPM).exists()
    transformers_engine.check(directory, (CONFIG, SPM if has_model else TOKENIZER))
    tokenizer = transformers_engine.open_tokenizer(directory)
    named = [tokenizer.init_kwargs.get(key) for key in ("src_lang", "tgt_lang")]
    source, target = languages or named
    if not languages and None not in named:
        log.warning(
            "no --languages: the model translates from %s to %s, as %s says",
            source, target, TOKENIZER_CONFIG,
        )  # fmt: skip
    if source is None or target is None:
        raise UserError(
            f"{directory}: a model of many languages, of which its tokenizer names no two; add "
            "--languages SOURCE,TARGET, as deu_Latn,eng_Latn or de,en"
        )
    segmenter = m2m100_tokens.read_segmenter(directory, tokenizer, str(source))
    chosen = {"source_language": str(source), "target_language": str(target)}
    both = [UNNAMED, UNNAMED]
    return _imported(directory, tokenizer, [segmenter] * 2, chosen, both, trained_length)


def _imported(
    directory: Path,
    tokenizer: Any,
    segmenters: Sequence[Unigram],
    decode: Mapping[str, Any],
    languages: Sequence[str],
    longest: int | None,
) -> Imported:
    """The model of a directory; `decode`: keys of that group."""
    model = transformers_engine.open_model(directory)
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    is_marian = config["model_type"] == "marian"
    architecture = MARIAN if is_marian else M2M100
    share = {} if is_marian else {"share_encoder_decoder_embeddings": True}
    shape = to_shape(directory / CONFIG, config | share)
    shape["norm"] = architecture.model["norm"]
    first = architecture.sinusoids.start
    if not is_marian and config["pad_token_id"] != first - 1:
        raise invalid(directory / CONFIG, f"pad_token_id: must be {first - 1}")
    path, tensors = directory / GENERATION, _weights(directory, model)
    start, ends = generation["decoder_start_token_id"], generation["eos_token_id"]
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    if start not in (eos, pad) or {*(ends if isinstance(ends, list) else [ends])} != {eos}:
        what = f"decoder_start_token_id={start}, eos_token_id={ends}: by the tokenizer an output"
        raise invalid(path, f"{what} begins with {pad} or {eos}, and ends with {eos}")
    ids = _number_sides(directory, tokenizer, start, tensors)
    known = transformers_engine.pieces_of(tokenizer)[1]
    if generation["forced_bos_token_id"] == language_id(known, decode.get("target_language", "")):
        generation["forced_bos_token_id"] = None  # is taken over
    if generation["max_length"] == config["max_position_embeddings"]:
        generation["max_length"] = None  # no limit but the table's
    encoding, search = architecture.sinusoids.overrides(), read_search(path, generation, ids[1])
    shared = ids[0] is ids[1]
    with in_file(path):
        settings = settings_of(encoding, {**search, **decode}, shape, longest, shared, languages)
    ours = marian_weights.to_ours(directory, tensors, settings.model, ids, HUGGING_FACE)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, ids, strict=True)]
    trained = make_trained(directory, settings, ours, sides, longest)
    trained.facts["positions"] = config["max_position_embeddings"]
    return Imported(trained, TRANSFORMERS, partial(TransformersScorer, directory, trained))


def _weights(directory: Path, model: Any) -> dict[str, Tensor]:
    """The tensors of a model but its sinusoids; UserError (65) for other positions."""
    tensors = {n.removeprefix("model."): t for n, t in model.state_dict().items()}
    for name, module in model.model.named_modules():
        if hasattr(module, "create_weight"):  # Marian's, which may be stored
            table = tensors.pop(f"{name}.weight")
            if (table - module.create_weight()).abs().max() > TABLE_ERROR:
                raise invalid(directory, f"{name} holds other positions than sinusoids")
    bias = tensors.get(BIAS, torch.zeros(len(tensors[OUTPUT])))  # M2M100 has none
    tensors[BIAS] = bias.flatten()
    return tensors


def _number_sides(
    directory: Path, tokenizer: Any, start: int, tensors: Mapping[str, Tensor]
) -> list[MarianIds]:
    """The ids of source and target, one object if both share a vocabulary."""
    both = transformers_engine.pieces_of(tokenizer)
    for token in tokenizer.added_tokens_decoder.values():
        if token.content not in {**both[0], **both[1]} or not token.special:
            what = f"added_tokens.json or the tokenizer's config adds {token.content}, which is one"
            raise invalid(directory, f"{what} piece anywhere in a line; that cannot be read")
    eos, unk, pad = (getattr(tokenizer, f"{name}_token_id") for name in ("eos", "unk", "pad"))

    def number(known: Mapping[str, int], rows: int) -> MarianIds:
        pieces = in_order(directory, known)
        if not 0 <= rows - len(pieces) <= MOST_MADE_UP:
            what = f"its tokenizer has {len(pieces)} pieces, but the embedding has {rows} rows"
            raise invalid(directory, what)
        pieces += [f"{MADE_UP}{n}" for n in range(rows - len(pieces))]
        special = [ABSENT if pad == start else pad, start, eos, unk]
        return marian_ids.number(directory, pieces, special)

    rows = len(tensors["encoder.embed_tokens.weight"]), len(tensors[OUTPUT])
    source = number(both[0], rows[0])
    one = both[0] is both[1] and rows[0] == rows[1]
    return [source, source if one else number(both[1], rows[1])]


def to_shape(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under `model` of our settings, from config.json.

    Keys that transformers ignores, such as normalize_before, are ignored.
    """
    shared = values.get("share_encoder_decoder_embeddings")
    tied = values.get("tie_word_embeddings")
    if values.get("scale_embedding") is not True:
        raise invalid(path, f"scale_embedding={values.get('scale_embedding')}: must be true")
    if values.get("quantization_config"):
        raise invalid(path, "quantization_config: quantised weights")
    for key in ("attention_heads", "ffn_dim"):
        if values.get(f"decoder_{key}") != values.get(f"encoder_{key}"):
            raise invalid(path, f"decoder_{key}: must be that of the encoder")
    shape = {key: (ours, values.get(key)) for key, ours in SHAPE.items()}
    if values.get("activation_function") == "silu":
        shape["activation_function"] = ("activation", "swish")
    tie = "all" if shared else "target" if tied else "none"
    return fit_keys(path, Model, shape) | {"tie": tie}


def read_search(path: Path, values: Mapping[str, Any], target: MarianIds) -> dict[str, Any]:
    """Our keys under `decode`, from generation_config.json; keys not taken over are logged."""
    never = values.get("bad_words_ids") or []
    never = never if isinstance(never, list) else [never]
    unknown = "forbid" if [target.numbers[UNK]] in never else "allow"
    ours = target.never(FORBIDDEN[unknown])
    others = [ids for ids in never if ids not in ours]
    warn_of_others(path, {**values, "bad_words_ids": others}, UNSHARED)
    beam, alpha = (values[key] for key in ("num_beams", "length_penalty"))
    beam, alpha = 1 if beam is None else beam, 1.0 if alpha is None else alpha
    return {"beam_size": beam, "alpha": alpha, "unknown": unknown}
