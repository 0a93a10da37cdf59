"""Read models of Hugging Face: Marian (OPUS-MT), M2M100 and NLLB.

The classes of transformers read the files; here their tensors become nmt's. What would compute
something else is refused by name, or by the proof: transformers is always there to compare with.
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
from nmt.exchange import interface, marian_weights
from nmt.exchange.interface import TRANSFORMERS, Imported, invalid
from nmt.exchange.marian_weights import ABSENT, BIAS, HUGGING_FACE, OUTPUT, EngineIds, number_pieces
from nmt.exchange.settings import (
    UNNAMED,
    fit_keys,
    make_trained,
    order_pieces,
    read_unigram,
    settings_of,
    warn_of_left_out,
)
from nmt.exchange.transformers_engine import (
    GENERATION,
    MARIAN,
    TOKENIZER_CONFIG,
    TransformersScorer,
    find_classes,
    language_id,
    open_model,
    open_tokenizer,
    pieces_of,
)
from nmt.modeldir import CONFIG, in_file
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram
from nmt.text.vocab import UNK

SPM = "sentencepiece.bpe.model"  # of M2M100 and NLLB
MADE_UP = "madeupword"  # with a number: name of a row of the embedding without a piece
MOST_MADE_UP = 1000  # such rows; NLLB has 2, M2M100 8, and some numbers of rows are rounded up
TABLE_ERROR = 0.0021  # of stored sinusoids: numbers up to 1, rounded to bfloat16 by 0.00195 at most
SHAPE = {  # key of config.json -> nmt's, under `model`
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


def read(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read a model with its segmenters.

    `trained_length`: pieces of the longest source in training; None: unknown, since the size of the
    table of positions does not tell. `languages`: of source and target, in M2M100 and NLLB; None:
    those of the tokenizer's config.
    """
    is_marian = find_classes(directory) == MARIAN
    for name in ("source.spm", "target.spm") if is_marian else (SPM,):
        if not (directory / name).exists():
            advice = "copy it from the model that this one was made of"
            raise invalid(directory / name, f"the file is missing; {advice}")
    tokenizer = open_tokenizer(directory)
    data_languages, chosen = [UNNAMED, UNNAMED], dict[str, str]()
    if is_marian:
        named = tokenizer.source_lang, tokenizer.target_lang
        data_languages = [str(name or UNNAMED) for name in named]
        segmenters: list[Unigram] = [
            read_unigram(MarianSegmenter, directory / f"{side}.spm", language)
            for side, language in zip(("source", "target"), data_languages, strict=True)
        ]
    else:
        chosen = _choose_languages(directory, tokenizer, languages)
        segmenters = [read_unigram(Unigram, directory / SPM, chosen["source_language"])] * 2
    model = open_model(directory)
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    tensors = _read_tensors(directory, model)
    ids = _number_sides(directory, tokenizer, generation["decoder_start_token_id"], tensors)
    architecture = interface.MARIAN if is_marian else interface.M2M100
    share = {} if is_marian else {"share_encoder_decoder_embeddings": True}
    shape = read_shape(directory / CONFIG, config | share)
    shape["norm"] = architecture.model["norm"]
    target_language = chosen.get("target_language", "")
    if generation["forced_bos_token_id"] == language_id(pieces_of(tokenizer)[1], target_language):
        generation["forced_bos_token_id"] = None  # is taken over
    if generation["max_length"] == config["max_position_embeddings"]:
        generation["max_length"] = None  # no limit but the table's
    search = read_search(directory / GENERATION, generation, tokenizer, ids[1])
    positions, shared = architecture.sinusoids.overrides(), ids[0] is ids[1]
    with in_file(directory / GENERATION):
        settings = settings_of(
            positions, search | chosen, shape, trained_length, shared, data_languages
        )
    weights = marian_weights.to_nmt(directory, tensors, settings.model, ids, HUGGING_FACE)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, ids, strict=True)]
    trained = make_trained(directory, settings, weights, sides, trained_length)
    trained.facts["positions"] = config["max_position_embeddings"]
    return Imported(trained, TRANSFORMERS, partial(TransformersScorer, directory, trained))


def _choose_languages(
    directory: Path, tokenizer: Any, languages: Sequence[str] | None
) -> dict[str, str]:
    """The keys under `decode` for the languages of a model of many."""
    named = [tokenizer.init_kwargs.get(key) for key in ("src_lang", "tgt_lang")]
    if not languages and None in named:
        raise UserError(
            f"{directory}: a model of many languages, of which its tokenizer names no two; add "
            "--languages SOURCE,TARGET, as deu_Latn,eng_Latn or de,en"
        )
    source, target = map(str, languages or named)
    if not languages:
        log.warning(
            "no --languages: the model translates from %s to %s, as %s says",
            source, target, TOKENIZER_CONFIG,
        )  # fmt: skip
    return {"source_language": source, "target_language": target}


def _read_tensors(directory: Path, model: Any) -> dict[str, Tensor]:
    """The tensors of a model but its sinusoids; UserError (65) for positions that are none."""
    tensors = {n.removeprefix("model."): t for n, t in model.state_dict().items()}
    for name, module in model.model.named_modules():
        if hasattr(module, "create_weight"):  # Marian's, which may be stored
            table = tensors.pop(f"{name}.weight")
            if (table - module.create_weight()).abs().max() > TABLE_ERROR:
                raise invalid(directory, f"{name} holds positions that are no sinusoids")
    bias = tensors.get(BIAS, torch.zeros(len(tensors[OUTPUT])))  # M2M100 has none
    tensors[BIAS] = bias.flatten()
    return tensors


def _number_sides(
    directory: Path, tokenizer: Any, start: int, tensors: Mapping[str, Tensor]
) -> list[EngineIds]:
    """The ids of source and target, one object if both share a vocabulary."""
    both = pieces_of(tokenizer)
    for token in tokenizer.added_tokens_decoder.values():
        if token.content not in {**both[0], **both[1]} or not token.special:
            what = f"added_tokens.json or the tokenizer's config adds {token.content}, which is one"
            raise invalid(directory, f"{what} piece anywhere in a line; that cannot be read")
    eos, unk, pad = (getattr(tokenizer, f"{name}_token_id") for name in ("eos", "unk", "pad"))
    if start not in (eos, pad):
        what = f"decoder_start_token_id={start}: neither the tokenizer's eos nor its padding"
        raise invalid(directory / GENERATION, what)

    def number(piece_ids: Mapping[str, int], rows: int) -> EngineIds:
        pieces = order_pieces(directory, piece_ids)
        if not 0 <= rows - len(pieces) <= MOST_MADE_UP:
            what = f"its tokenizer has {len(pieces)} pieces, but the embedding has {rows} rows"
            raise invalid(directory, what)
        pieces += [f"{MADE_UP}{n}" for n in range(rows - len(pieces))]
        special = [ABSENT if pad == start else pad, start, eos, unk]
        return number_pieces(directory, pieces, special)

    rows = len(tensors["encoder.embed_tokens.weight"]), len(tensors[OUTPUT])
    source = number(both[0], rows[0])
    one = both[0] is both[1] and rows[0] == rows[1]
    return [source, source if one else number(both[1], rows[1])]


def read_shape(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under `model` of nmt's settings, from config.json.

    Keys that transformers ignores, such as normalize_before, are ignored.
    """
    activation = config.get("activation_function")
    config = {**config, "activation_function": "swish" if activation == "silu" else activation}
    tied, shared = config["tie_word_embeddings"], config["share_encoder_decoder_embeddings"]
    tie = "all" if shared else "target" if tied else "none"
    shape = {key: (key_in_nmt, config.get(key)) for key, key_in_nmt in SHAPE.items()}
    return fit_keys(path, Model, shape) | {"tie": tie}


def read_search(
    path: Path, generation: Mapping[str, Any], tokenizer: Any, target: EngineIds
) -> dict[str, Any]:
    """The keys under `decode`, from generation_config.json; keys not taken over are logged."""
    ends = generation["eos_token_id"]
    if ends not in (tokenizer.eos_token_id, [tokenizer.eos_token_id]):
        raise invalid(path, f"eos_token_id={ends}: not the tokenizer's, {tokenizer.eos_token_id}")
    never = generation.get("bad_words_ids") or []
    never = never if isinstance(never, list) else [never]
    unknown = "forbid" if [target.numbers[UNK]] in never else "allow"
    forbidden = target.never(FORBIDDEN[unknown])
    left_out = [ids for ids in never if ids not in forbidden]
    warn_of_left_out(path, {**generation, "bad_words_ids": left_out}, UNSHARED)
    beam, alpha = (generation[key] for key in ("num_beams", "length_penalty"))
    beam, alpha = 1 if beam is None else beam, 1.0 if alpha is None else alpha
    return {"beam_size": beam, "alpha": alpha, "unknown": unknown}
