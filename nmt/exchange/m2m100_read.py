"""M2M100 and NLLB models as Hugging Face stores them, read from their directory.

Nothing is left out in silence: what would compute something else is refused by name.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nmt.data.unigram import Unigram
from nmt.errors import UserError
from nmt.exchange import m2m100_tokens, marian_weights, transformers_config
from nmt.exchange.adapter import TRANSFORMERS, Imported
from nmt.exchange.files import sentencepiece
from nmt.exchange.settings import settings_of, sinusoids
from nmt.exchange.transformers_config import START, M2M100Config
from nmt.exchange.transformers_scorer import M2M100Scorer

SINUSOIDS = ("halves", "tensor2tensor", START)


def read(
    directory: Path, trained_length: int | None = None, languages: Sequence[str] | None = None
) -> Imported:
    """Read a model with its segmenter; it is not compared with other software here.

    `trained_length`: pieces of the longest source in training, None: unknown. `languages`: of
    source and target at first; None: what the tokenizer's config says. Raises UserError (65) for a
    file that is missing, damaged, or says what is not understood here; (2) for no language, or
    one that it does not know.
    """
    config = transformers_config.read(M2M100Config, directory / "config.json")
    ids, named = m2m100_tokens.read(directory, config.vocab_size)
    source, target = languages or named
    if source is None or target is None:
        raise UserError(
            f"{directory}: a model of many languages, of which its tokenizer names no two; add "
            "--languages SOURCE,TARGET, as deu_Latn,eng_Latn or de,en"
        )
    generation = transformers_config.read_generation(directory)
    overrides = [
        *sinusoids(*SINUSOIDS),
        *(f"decode.beam_size={generation.num_beams}", f"decode.alpha={generation.length_penalty}"),
        *(f"decode.source_language={source}", f"decode.target_language={target}"),
    ]
    settings = settings_of(overrides, config.shape(), trained_length, True)
    segmenter = sentencepiece(Unigram, directory / m2m100_tokens.SPM, source)
    tensors = marian_weights.read(directory)
    marian_weights.take_positions(directory, tensors, config.d_model, fairseq=True)
    trained = marian_weights.trained_of(
        directory, settings, tensors, [segmenter] * 2, [ids] * 2, trained_length
    )
    tokenizer = m2m100_tokens.kind_of([file.name for file in directory.iterdir()])
    return Imported(
        trained, TRANSFORMERS, partial(M2M100Scorer, directory, settings.decode, ids, tokenizer)
    )
