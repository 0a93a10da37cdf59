"""Write models as directories of Hugging Face: Marian, M2M100, NLLB."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from nmt.config.settings import Decode, Model
from nmt.decode.torch_engine import FORBIDDEN
from nmt.errors import Exit, UserError
from nmt.exchange import m2m100_tokens, marian_ids, marian_weights, model_card
from nmt.exchange import transformers_engine as files
from nmt.exchange.interface import EngineScorer, Export
from nmt.exchange.marian_ids import MarianIds
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT
from nmt.exchange.requirements import component_order, sentencepiece_of
from nmt.exchange.settings import UNNAMED, warn_of_length_penalty
from nmt.exchange.transformers_engine import (
    M2M100,
    MARIAN,
    NLLB,
    PIECES,
    TOKENIZER,
    TransformersScorer,
)
from nmt.exchange.transformers_read import SHAPE
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS

POSITIONS = 1024  # of the table, as in the largest models; an imported model keeps its number
TRAINED = "train with trainer.freeze=[embeddings,output.bias]"


def prepare_marian(trained: Trained) -> Export:
    """Prepare the export of a Marian model; UserError for a model of another form."""
    ids = marian_ids.with_padding(trained.source.vocabulary, trained.target.vocabulary)
    positions = _count_positions(trained)

    def write(directory: Path, precision: str) -> EngineScorer:
        _write_files(directory, _tokenizer_of_marian(trained, ids, positions))
        _write_weights(directory, trained, MARIAN[0], ids, positions)
        return TransformersScorer(directory, trained)

    return Export(
        trained, write, lambda path: model_card.program(trained, path, positions - 2, MARIAN)
    )


def prepare_m2m100(trained: Trained) -> Export:
    """Prepare the export of an M2M100 or NLLB model; UserError for a model of another form."""
    output, decode = trained.model.output, trained.settings.decode
    names = decode.source_language, decode.target_language
    bias = output.bias.clone()
    bias[BOS] = 0
    differs = not torch.equal(output.weight[BOS], output.weight[EOS])
    for wrong, what, why in (
        (None in names, "decode.source_language and target_language", "never null there"),
        (bias.any(), "an output.bias other than 0", TRAINED),
        (differs, "an embedding of bos other than that of eos", TRAINED),
    ):
        if wrong:
            raise UserError(
                f"{what}: cannot be exported to M2M100 ({why}); export --to ctranslate2"
            )
    languages = [str(name) for name in names]
    tokenizer = m2m100_tokens.to_files(trained.source, languages)
    ids = [m2m100_tokens.number(s.vocabulary) for s in (trained.source, trained.target)]

    def write(directory: Path, precision: str) -> EngineScorer:
        _write_files(directory, tokenizer)
        _write_weights(directory, trained, M2M100[0], ids, _count_positions(trained))
        if PIECES not in tokenizer:  # NLLB: transformers makes tokenizer.json of the others
            backend = files.open_tokenizer(directory).backend_tokenizer
            backend.save(str(directory / TOKENIZER))
        return TransformersScorer(directory, trained)

    classes = M2M100 if PIECES in tokenizer else NLLB
    code = partial(model_card.program, trained, most=None, classes=classes)
    return Export(trained, write, code)


def _count_positions(trained: Trained) -> int:
    positions, longest = (trained.facts.get(key) for key in ("positions", "longest_source"))
    return max(positions or POSITIONS, (longest or 0) + 1)


def _write_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    directory.mkdir()
    for name, data in contents.items():
        (directory / name).write_bytes(data)


def _tokenizer_of_marian(
    trained: Trained, ids: Sequence[MarianIds], positions: int
) -> dict[str, bytes]:
    data, (source, target) = trained.settings.data, ids
    languages = {"source_lang": data.source_language, "target_lang": data.target_language}
    separate = source.vocabulary.to_json() != target.vocabulary.to_json()
    config = {
        **{key: language for key, language in languages.items() if language != UNNAMED},
        "model_max_length": positions,
        "separate_vocabs": separate,
        "tokenizer_class": MARIAN[1],
    }
    return {
        files.TOKENIZER_CONFIG: manifest.dump(config),
        PIECES: manifest.dump(source.to_json()),
        **({"target_vocab.json": manifest.dump(target.to_json())} if separate else {}),
        "source.spm": sentencepiece_of(trained.source),
        "target.spm": sentencepiece_of(trained.target),
    }


def _write_weights(
    directory: Path, trained: Trained, kind: str, ids: Sequence[MarianIds], positions: int
) -> None:
    """Let transformers write weights, config.json and generation_config.json."""
    source, target = ids
    config = to_config(trained.settings.model, source, target, positions)
    search = to_generation(trained.settings.decode, target, positions)
    order = component_order(trained.model)
    tensors = marian_weights.to_theirs(trained, order, ids, HUGGING_FACE)
    bias = tensors.pop(BIAS)[None]
    tensors = {n if n == OUTPUT else f"model.{n}": t for n, t in tensors.items()}
    tensors |= {BIAS: bias} if kind == MARIAN[0] else {}
    with files.in_transformers(directory) as transformers:
        model_class = getattr(transformers, kind)
        config_class = model_class.config_class
        keys = {key: v for key, v in config.items() if hasattr(config_class, key)}
        model = model_class.from_pretrained(None, config=config_class(**keys), state_dict=tensors)
        model.generation_config = transformers.GenerationConfig(**search)
    try:
        model.save_pretrained(directory)
    except SafetensorError as error:  # of a full disk, too
        raise UserError(f"{directory}: {error}", Exit.IO) from None


def to_config(shape: Model, source: MarianIds, target: MarianIds, positions: int) -> dict[str, Any]:
    """The keys of config.json."""
    return {
        **{theirs: getattr(shape, ours) for theirs, ours in SHAPE.items()},
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": shape.tie == "all",
        "tie_word_embeddings": shape.tie != "none",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "max_position_embeddings": positions,
        **special_ids(target),
    }


def to_generation(decode: Decode, target: MarianIds, positions: int) -> dict[str, Any]:
    """The keys of generation_config.json for our search settings."""
    warn_of_length_penalty(decode, "transformers")
    return {
        "bad_words_ids": target.never(FORBIDDEN[decode.unknown]),
        "max_length": positions,
        "num_beams": decode.beam_size,
        **({"length_penalty": decode.alpha} if decode.beam_size > 1 else {}),
        **special_ids(target),
    }


def special_ids(target: MarianIds) -> dict[str, int]:
    """The ids in both files."""
    eos = target.numbers[EOS]
    ids = {"decoder_start_token_id": target.numbers[BOS], "pad_token_id": target.pad}
    return ids | {"eos_token_id": eos, "forced_eos_token_id": eos}
