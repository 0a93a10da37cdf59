"""Models as Hugging Face stores them, read from their directory: Marian (OPUS-MT), M2M100 and NLLB.

The classes of transformers read files, numbers and names; here their tensors become ours. What
would make the model compute something else is refused by name. `trained_length`: pieces of the
longest source in training, which no file tells: the size of a table of positions says nothing about
it. None: it stays unknown.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config.settings import with_decode
from nmt.errors import Exit, UserError
from nmt.exchange import m2m100_tokens, marian_weights, transformers_config, transformers_files
from nmt.exchange.adapter import TRANSFORMERS, Imported
from nmt.exchange.files import in_order, sentencepiece, trained_of, vocabulary
from nmt.exchange.m2m100_tokens import MADE_UP, SPM
from nmt.exchange.marian_ids import ABSENT, MarianIds
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT
from nmt.exchange.settings import UNNAMED, settings_of, sinusoids
from nmt.exchange.transformers_config import M2M100_SINUSOIDS, MARIAN_SINUSOIDS
from nmt.exchange.transformers_files import GENERATION, PIECES, TOKENIZER, language_id
from nmt.exchange.transformers_scorer import TransformersScorer
from nmt.modeldir import CONFIG, in_file
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram

MOST_MADE_UP = 1000  # rows without a piece; NLLB has 2, M2M100 8, and some are rounded up
TABLE_ERROR = 0.0021  # of stored sinusoids: numbers up to 1, rounded to bfloat16 by 0.00195 at most


def marian(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a Marian model with its segmenters; it is not compared with transformers here.

    Raises UserError: 65 for a file that is missing, damaged, or says what no model here computes,
    69 without transformers.
    """
    models = "source.spm", "target.spm"
    transformers_files.check(directory, (CONFIG, PIECES, *models))
    tokenizer = transformers_files.open_tokenizer(directory)
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

    `languages`: of source and target at first; None: what the tokenizer's config says. Raises
    UserError as `marian` does; (2) for no language, or one that it does not know.
    """
    has_model = (directory / PIECES).exists() or (directory / SPM).exists()
    transformers_files.check(directory, (CONFIG, SPM if has_model else TOKENIZER))
    tokenizer = transformers_files.open_tokenizer(directory)
    named = [tokenizer.init_kwargs.get(key) for key in ("src_lang", "tgt_lang")]
    source, target = languages or named
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
    """The model of a directory; segmenters and languages are those of source and target.

    `decode`: keys of that group.
    """
    model = transformers_files.open_model(directory)
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    is_marian = config["model_type"] == "marian"
    positions = MARIAN_SINUSOIDS if is_marian else M2M100_SINUSOIDS
    share = {} if is_marian else {"share_encoder_decoder_embeddings": True}
    shape = transformers_config.to_shape(directory / CONFIG, config | share)
    shape["norm"] = "post" if is_marian else "pre"
    if not is_marian and config["pad_token_id"] != positions[2] - 1:
        what = f"pad_token_id: must be {positions[2] - 1}, behind which positions begin"
        raise UserError(f"{directory / CONFIG}: {what}", Exit.DATA)
    where, tensors = directory / GENERATION, _weights(directory, model)
    start, ends = generation["decoder_start_token_id"], generation["eos_token_id"]
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    if start not in (eos, pad) or {*(ends if isinstance(ends, list) else [ends])} != {eos}:
        what = f"decoder_start_token_id={start}, eos_token_id={ends}: by the tokenizer an output"
        raise UserError(
            f"{where}: {what} begins with {pad} or {eos}, and ends with {eos}", Exit.DATA
        )
    ids = _number_sides(directory, tokenizer, start, tensors)
    known = transformers_files.pieces_of(tokenizer)[1]
    if generation["forced_bos_token_id"] == language_id(known, decode.get("target_language", "")):
        generation["forced_bos_token_id"] = None  # is taken over
    choices = [*sinusoids(*positions), *transformers_config.read_search(where, generation, ids[1])]
    with in_file(where):
        settings = settings_of(choices, shape, longest, ids[0] is ids[1], languages)
    settings = with_decode(settings, decode)
    ours = marian_weights.to_ours(directory, tensors, settings.model, ids, HUGGING_FACE)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, ids, strict=True)]
    trained = trained_of(directory, settings, ours, sides, longest)
    trained.facts["positions"] = config["max_position_embeddings"]
    return Imported(trained, TRANSFORMERS, partial(TransformersScorer, directory, trained))


def _weights(directory: Path, model: Any) -> dict[str, Tensor]:
    """The tensors of a model, less its sinusoids; UserError (65) where these are others."""
    tensors = {n.removeprefix("model."): t for n, t in model.state_dict().items()}
    for name, module in model.model.named_modules():
        if hasattr(module, "create_weight"):  # Marian's, which may be stored
            table = tensors.pop(f"{name}.weight")
            if (table - module.create_weight()).abs().max() > TABLE_ERROR:
                what = "holds other positions than sinusoids"
                raise UserError(f"{directory}: {name} {what}", Exit.DATA)
    bias = tensors.get(BIAS, torch.zeros(len(tensors[OUTPUT])))  # M2M100 has none
    tensors[BIAS] = bias.flatten()
    return marian_weights.checked(directory, tensors)


def _number_sides(
    directory: Path, tokenizer: Any, start: int, tensors: Mapping[str, Tensor]
) -> list[MarianIds]:
    """The ids of source and target, one object where both have one vocabulary.

    UserError (65) for ids that are not those of the rows of the embeddings.
    """
    both = transformers_files.pieces_of(tokenizer)
    for token in tokenizer.added_tokens_decoder.values():
        if token.content not in {**both[0], **both[1]} or not token.special:
            what = f"added_tokens.json or the tokenizer's config adds {token.content}, which is one"
            why = f"{what} piece wherever it stands in a line; that cannot be read"
            raise UserError(f"{directory}: {why}", Exit.DATA)
    eos, unk, pad = (getattr(tokenizer, f"{name}_token_id") for name in ("eos", "unk", "pad"))

    def number(known: Mapping[str, int], rows: int) -> MarianIds:
        pieces = in_order(directory, known)
        if not 0 <= rows - len(pieces) <= MOST_MADE_UP:
            what = f"its tokenizer has {len(pieces)} pieces, but the embedding has {rows} rows"
            raise UserError(f"{directory}: {what}", Exit.DATA)
        pieces += [f"{MADE_UP}{n}" for n in range(rows - len(pieces))]
        others = [i for i in range(rows) if i not in (eos, unk, pad, start)]
        names = vocabulary(directory, [pieces[i] for i in others])
        return MarianIds(names, [eos, unk, *others], start, ABSENT if pad == start else pad)

    rows = len(tensors["encoder.embed_tokens.weight"]), len(tensors[OUTPUT])
    source = number(both[0], rows[0])
    one = both[0] is both[1] and rows[0] == rows[1]
    return [source, source if one else number(both[1], rows[1])]
