"""Models as Hugging Face stores them, read from their directory: Marian (OPUS-MT), M2M100 and NLLB.

Nothing is left out in silence: a config that would make the model compute something else, a tensor
that has no place here, a vocabulary that does not fit are refused by name. Neither is compared with
other software here. `trained_length`: pieces of the longest source in training, which no file
tells: the size of a table of positions says nothing about it. None: it stays unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmt.errors import Exit, UserError
from nmt.exchange import m2m100_tokens, marian_ids, marian_weights, transformers_config
from nmt.exchange.adapter import TRANSFORMERS, Imported
from nmt.exchange.files import sentencepiece, trained_of
from nmt.exchange.marian_ids import PAD_PIECE, MarianIds
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE
from nmt.exchange.settings import UNNAMED, settings_of, sinusoids
from nmt.exchange.transformers_config import M2M100Config, MarianConfig
from nmt.exchange.transformers_scorer import M2M100Scorer, MarianScorer
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram


def marian(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a Marian model with its segmenters.

    Raises UserError (65) for a file that is missing, damaged, or says what is not understood here.
    """
    config = transformers_config.read(MarianConfig, directory / "config.json")
    languages, separate = _tokenizer(directory)
    source = marian_ids.read(directory / "vocab.json")
    target = marian_ids.read(directory / "target_vocab.json") if separate else source
    if (start := config.decoder_start_token_id) != target.start:
        raise UserError(
            f"{directory}: config.json starts the decoder with id {start}, but {PAD_PIECE} is "
            f"{target.start}; only a model that starts with {PAD_PIECE} can be read",
            Exit.DATA,
        )
    segmenters = [
        sentencepiece(MarianSegmenter, directory / f"{name}.spm", language)
        for name, language in zip(("source", "target"), languages, strict=True)
    ]
    both = (source, target)
    trained = _trained(directory, config, {}, segmenters, both, trained_length, languages)
    scorer = partial(MarianScorer, directory, trained.settings.decode, *both)
    return Imported(trained, TRANSFORMERS, scorer)


def m2m100(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read an M2M100 or NLLB model with its segmenter.

    `languages`: of source and target at first; None: what the tokenizer's config says. Raises
    UserError as `marian` does; (2) for no language, or one that it does not know.
    """
    config = transformers_config.read(M2M100Config, directory / "config.json")
    ids, named = m2m100_tokens.read(directory, config.vocab_size)
    source, target = languages or named
    if source is None or target is None:
        raise UserError(
            f"{directory}: a model of many languages, of which its tokenizer names no two; add "
            "--languages SOURCE,TARGET, as deu_Latn,eng_Latn or de,en"
        )
    chosen = {"source_language": str(source), "target_language": str(target)}
    segmenters = [sentencepiece(Unigram, directory / m2m100_tokens.SPM, source)] * 2
    trained = _trained(directory, config, chosen, segmenters, [ids] * 2, trained_length)
    scorer = partial(M2M100Scorer, directory, trained.settings.decode, ids, ids)
    return Imported(trained, TRANSFORMERS, scorer)


def _trained(
    directory: Path,
    config: MarianConfig,
    decode: Mapping[str, Any],
    segmenters: Sequence[Unigram],
    ids: Sequence[MarianIds],
    longest: int | None,
    languages: Sequence[str] = (UNNAMED, UNNAMED),
) -> Trained:
    """The model of a directory; segmenters, ids and languages are those of source and target.

    `decode`: keys of that group.
    """
    search = transformers_config.read_generation(directory, ids[1])
    chosen = [
        *sinusoids(*config.SINUSOIDS),
        *(f"decode.beam_size={search.num_beams}", f"decode.alpha={search.length_penalty}"),
        f"decode.unknown={search.unknown}",
    ]
    shared = ids[0] is ids[1]
    settings = settings_of(chosen, config.shape(), longest, shared, languages)
    settings = replace(settings, decode=replace(settings.decode, **decode))
    tensors = marian_weights.read(directory)
    marian_weights.take_positions(directory, tensors, config.d_model, *config.SINUSOIDS)
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    tensors[BIAS] = tensors.get(BIAS, torch.zeros(ids[1].size)).flatten()  # M2M100 has none
    ours = marian_weights.to_ours(directory, tensors, settings.model, ids, HUGGING_FACE)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, ids, strict=True)]
    return trained_of(directory, settings, ours, sides, longest)


def _tokenizer(directory: Path) -> tuple[list[str], bool]:
    """The languages of both sides, and whether each has a vocabulary of its own."""
    where = directory / "tokenizer_config.json"
    values = manifest.read(where, None) if where.exists() else {}
    separate = values.get("separate_vocabs", False)
    if not isinstance(separate, bool):
        raise UserError(f"{where}: separate_vocabs={separate}: expected true or false", Exit.DATA)
    return [str(values.get(f"{s}_lang") or UNNAMED) for s in ("source", "target")], separate
