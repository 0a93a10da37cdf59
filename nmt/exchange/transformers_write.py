"""Write models as directories of Hugging Face: Marian, M2M100, NLLB."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from nmt.config.settings import Decode, Model
from nmt.decode.torch_engine import FORBIDDEN
from nmt.errors import Exit, UserError
from nmt.exchange import marian_weights, model_card
from nmt.exchange.interface import EngineScorer, Export
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT, EngineIds, number_opus
from nmt.exchange.settings import UNNAMED, sentencepiece_of, warn_of_length_penalty
from nmt.exchange.transformers_engine import (
    M2M100,
    MARIAN,
    NLLB,
    PIECES,
    TOKENIZER_CONFIG,
    TransformersScorer,
    in_transformers,
    open_tokenizer,
)
from nmt.exchange.transformers_read import MADE_UP, SHAPE, SPM
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.vocab import BOS, EOS, Vocabulary

POSITIONS = 1024  # of the table, as in the largest models; an imported model keeps its number
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]  # of M2M100 and NLLB, by id; <s> is nmt's first piece
FIRST_IDS = [1, 2, 2, 3, 0]  # there, of nmt's special ids and of that piece
TRAINED = "train with trainer.freeze=[embeddings,output.bias]"


def prepare_marian(trained: Trained) -> Export:
    """Prepare the export of a Marian model."""
    ids = number_opus(trained.source.vocabulary, trained.target.vocabulary)
    most = _count_positions(trained) - 2
    return Export(
        trained,
        partial(_write, trained, MARIAN, ids, _tokenizer_of_marian(trained, ids)),
        lambda path: model_card.write_program(trained, path, most, MARIAN),
    )


def prepare_m2m100(trained: Trained) -> Export:
    """Prepare the export of an M2M100 or NLLB model; UserError if a part has no counterpart."""
    output, decode = trained.model.output, trained.settings.decode
    languages = decode.source_language, decode.target_language
    bias = output.bias.clone()
    bias[BOS] = 0
    differs = not torch.equal(output.weight[BOS], output.weight[EOS])
    for wrong, what, why in (
        (None in languages, "decode.source_language and target_language", "never null there"),
        (bias.any(), "an output.bias that is not 0", TRAINED),
        (differs, "an embedding of bos that is not that of eos", TRAINED),
    ):
        if wrong:
            what = f"{what}: cannot be exported to M2M100 ({why})"
            raise UserError(f"{what}; export --to ctranslate2")
    tokenizer = _tokenizer_of_m2m100(trained.source, list(map(str, languages)))
    classes = M2M100 if PIECES in tokenizer else NLLB
    ids = [_number_m2m100(side.vocabulary) for side in (trained.source, trained.target)]
    return Export(
        trained,
        partial(_write, trained, classes, ids, tokenizer),
        partial(model_card.write_program, trained, most=None, classes=classes),
    )


def _count_positions(trained: Trained) -> int:
    positions, longest = (trained.facts.get(key) for key in ("positions", "longest_source"))
    return max(positions or POSITIONS, (longest or 0) + 1)


def _write(
    trained: Trained,
    classes: tuple[str, str],
    ids: Sequence[EngineIds],
    tokenizer: Mapping[str, bytes],
    directory: Path,
    precision: str,
) -> EngineScorer:
    """Write the tokenizer's files; let transformers write weights and configs; open the result."""
    directory.mkdir()
    for name, data in tokenizer.items():
        (directory / name).write_bytes(data)
    positions = _count_positions(trained)
    start, eos, pad = ids[1].numbers[BOS], ids[1].numbers[EOS], ids[1].pad
    special = {"decoder_start_token_id": start, "pad_token_id": pad}
    special |= {"eos_token_id": eos, "forced_eos_token_id": eos}
    config = special | _config_of(trained.settings.model, ids, positions)
    search = special | _generation_of(trained.settings.decode, ids[1], positions)
    tensors = marian_weights.to_engine(trained, ids, HUGGING_FACE)
    bias = tensors.pop(BIAS)[None]
    tensors = {n if n == OUTPUT else f"model.{n}": t for n, t in tensors.items()}
    tensors |= {BIAS: bias} if classes == MARIAN else {}
    with in_transformers(directory) as transformers:
        model_class = getattr(transformers, classes[0])
        config_class = model_class.config_class
        keys = {key: v for key, v in config.items() if hasattr(config_class, key)}
        model = model_class.from_pretrained(None, config=config_class(**keys), state_dict=tensors)
        model.generation_config = transformers.GenerationConfig(**search)
    try:
        model.save_pretrained(directory)
    except SafetensorError as error:  # of a full disk, too
        raise UserError(f"{directory}: {error}", Exit.IO) from None
    if classes == NLLB:  # transformers makes tokenizer.json of the other files
        backend = open_tokenizer(directory).backend_tokenizer
        backend.save(str(directory / "tokenizer.json"))
    return TransformersScorer(directory, trained)


def _tokenizer_of_marian(trained: Trained, ids: Sequence[EngineIds]) -> dict[str, bytes]:
    data, (source, target) = trained.settings.data, ids
    languages = {"source_lang": data.source_language, "target_lang": data.target_language}
    separate = source.vocabulary.to_json() != target.vocabulary.to_json()
    config = {
        **{key: language for key, language in languages.items() if language != UNNAMED},
        "model_max_length": _count_positions(trained),
        "separate_vocabs": separate,
        "tokenizer_class": MARIAN[1],
    }
    return {
        TOKENIZER_CONFIG: manifest.dump(config),
        PIECES: manifest.dump(source.to_json()),
        **({"target_vocab.json": manifest.dump(target.to_json())} if separate else {}),
        "source.spm": sentencepiece_of(trained.source),
        "target.spm": sentencepiece_of(trained.target),
    }


def _number_m2m100(vocabulary: Vocabulary) -> EngineIds:
    """The ids of a vocabulary whose first piece is <s>."""
    of_pieces = range(len(FIRST), len(FIRST) - 1 + len(vocabulary.to_json()))
    return EngineIds(vocabulary, [*FIRST_IDS, *of_pieces])


def _tokenizer_of_m2m100(side: Side, languages: Sequence[str]) -> dict[str, bytes]:
    """The tokenizer's files; UserError for a vocabulary without the languages of M2M100 or NLLB.

    M2M100 numbers the pieces in vocab.json, and its languages after them. Of NLLB, transformers
    makes tokenizer.json.
    """
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    first, *rest = side.vocabulary.to_json()
    pieces = [first, *FIRST[1:], *rest]
    in_tokenizer = [piece for piece in pieces if not piece.startswith(MADE_UP)]
    source, target = (language.strip("_") for language in languages)
    config: dict[str, Any] = {"src_lang": source, "tgt_lang": target}
    files = {SPM: sentencepiece_of(side)}
    for name, codes in FAIRSEQ_LANGUAGE_CODES.items():
        bracketed = [f"__{code}__" for code in codes]
        if in_tokenizer[-len(bracketed) :] == bracketed:
            numbered = {p: n for n, p in enumerate(in_tokenizer[: -len(bracketed)])}
            config |= {"tokenizer_class": M2M100[1], "language_codes": name}
            config |= {"additional_special_tokens": bracketed}
            config |= {"num_madeup_words": len(pieces) - len(in_tokenizer)}
            files[PIECES] = manifest.dump(numbered)
            return files | {TOKENIZER_CONFIG: manifest.dump(config)}
    codes = [p for p in in_tokenizer if re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", p)]
    if first != FIRST[0] or not codes:
        what = "it has not the languages of M2M100 or NLLB; export --to ctranslate2"
        raise UserError(f"the vocabulary cannot be exported to M2M100: {what}")
    config |= {"tokenizer_class": NLLB[1], "additional_special_tokens": codes}
    of_text = {*side.segmenter.pieces} - {*codes}
    config["added_tokens_decoder"] = {
        str(number): {"content": piece, "special": True, "lstrip": piece == "<mask>"}
        for number, piece in enumerate(in_tokenizer)
        if piece not in of_text
    }
    return files | {TOKENIZER_CONFIG: manifest.dump(config)}


def _config_of(shape: Model, ids: Sequence[EngineIds], positions: int) -> dict[str, Any]:
    """The keys of config.json, but for special ids."""
    source, target = ids
    return {
        **{key: getattr(shape, key_in_nmt) for key, key_in_nmt in SHAPE.items()},
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": shape.tie == "all",
        "tie_word_embeddings": shape.tie != "none",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "max_position_embeddings": positions,
    }


def _generation_of(decode: Decode, target: EngineIds, positions: int) -> dict[str, Any]:
    """The keys of generation_config.json for nmt's search settings, but for special ids."""
    warn_of_length_penalty(decode, "transformers")
    return {
        "bad_words_ids": target.never(FORBIDDEN[decode.unknown]),
        "max_length": positions,
        "num_beams": decode.beam_size,
        **({"length_penalty": decode.alpha} if decode.beam_size > 1 else {}),
    }
