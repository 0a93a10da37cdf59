"""Marian models as Hugging Face stores them, such as those of OPUS-MT, read from their directory.

Nothing is left out in silence: a config that would make the model compute something else, a tensor
that has no place here, a vocabulary that does not fit are refused by name.
"""

from functools import partial
from pathlib import Path

from nmt.data.marian import MarianSegmenter
from nmt.errors import Exit, UserError
from nmt.exchange import marian_ids, marian_weights, transformers_config
from nmt.exchange.adapter import TRANSFORMERS, Imported
from nmt.exchange.files import read_object, sentencepiece
from nmt.exchange.marian_ids import PAD_PIECE
from nmt.exchange.settings import UNNAMED, settings_of, sinusoids
from nmt.exchange.transformers_config import MarianConfig
from nmt.exchange.transformers_scorer import MarianScorer


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model with its segmenters; it is not compared with other software here.

    `trained_length`: pieces of the longest source in training, which no file tells: the size of
    the table of positions says nothing about it. None: it stays unknown. Raises UserError
    (65) for a file that is missing, damaged, or says what is not understood here.
    """
    config = transformers_config.read(MarianConfig, directory / "config.json")
    languages, separate = _tokenizer(directory)
    source = marian_ids.read(directory / "vocab.json")
    target = marian_ids.read(directory / "target_vocab.json") if separate else source
    if (start := config.decoder_start_token_id) != target.pad:
        raise UserError(
            f"{directory}: config.json starts the decoder with id {start}, but {PAD_PIECE} is "
            f"{target.pad}; only a model that starts with {PAD_PIECE} can be read",
            Exit.DATA,
        )
    generation = transformers_config.read_generation(directory)
    overrides = [
        *sinusoids("halves", "paper"),
        *(f"decode.beam_size={generation.num_beams}", f"decode.alpha={generation.length_penalty}"),
    ]
    settings = settings_of(overrides, config.shape(), trained_length, not separate, languages)
    segmenters = [
        sentencepiece(MarianSegmenter, directory / f"{name}.spm", language)
        for name, language in zip(("source", "target"), languages, strict=True)
    ]
    tensors = marian_weights.read(directory)
    marian_weights.take_positions(directory, tensors, config.d_model)
    trained = marian_weights.trained_of(
        directory, settings, tensors, segmenters, (source, target), trained_length
    )
    scorer = partial(MarianScorer, directory, settings.decode, source, target)
    return Imported(trained, TRANSFORMERS, scorer)


def _tokenizer(directory: Path) -> tuple[list[str], bool]:
    """The languages of both sides, and whether each has a vocabulary of its own."""
    where = directory / "tokenizer_config.json"
    values = read_object(where) if where.exists() else {}
    separate = values.get("separate_vocabs", False)
    if not isinstance(separate, bool):
        raise UserError(f"{where}: separate_vocabs={separate}: expected true or false", Exit.DATA)
    return [str(values.get(f"{s}_lang") or UNNAMED) for s in ("source", "target")], separate
