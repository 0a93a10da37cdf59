"""CTranslate2 directories in float32 become models: what OpenNMT-py and OpenNMT-tf train, mostly.

Transformers with sinusoids or Shaw's relative positions, or with none. Nothing is left out in
silence: a variable that has no place here is refused by name.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nmt import modeldir
from nmt.config.data import LEARNED
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_file
from nmt.exchange.adapter import CTRANSLATE2, Imported
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import Naming, prefixes
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.exchange.ctranslate2_weights import FROM_ZERO, encoding_of, model_of, tensors_of
from nmt.exchange.files import sentencepiece, trained_of, vocabulary
from nmt.exchange.settings import UNNAMED, settings_of
from nmt.modeldir import CTRANSLATE2_WEIGHTS, SETTINGS_BESIDE
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.unigram import Unigram
from nmt.text.vocab import SPECIALS

PADDINGS = ("<blank>", "<pad>")  # what a vocabulary calls padding
EPSILON = 1e-5  # of layer norms


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model; its segmenters are source.json and target.json, or .spm, in the same place.

    `trained_length`: pieces of the longest source in training; None: as nmt-export wrote it, or
    unknown. Raises UserError (65) for a file that is missing, damaged, or holds what cannot be
    expressed here.
    """
    files = ctranslate2_file.read(directory)
    if files.number(FROM_ZERO, 0):
        raise UserError(
            f"{directory}: a Marian model (as of OPUS-MT) in CTranslate2, whose decoder starts "
            "from no embedding; import the directory that it was converted from",
            Exit.DATA,
        )
    both = (files.source, files.target)
    orders = [_order(files, names) for names in both]
    named = [[names[i] for i in order] for names, order in zip(both, orders, strict=True)]
    encoding = [*encoding_of(files), "decode.alpha=1.0"]
    sides = [
        _side(directory, name, pieces)
        for name, pieces in zip(("source", "target"), named, strict=True)
    ]
    settings = settings_of(encoding, model_of(files), trained_length, files.shared)
    if (directory / SETTINGS_BESIDE).exists():  # by nmt-export: how its text is read and searched
        sealed = manifest.VerifiedDirectory(directory, "a whole directory of nmt-export")
        exported = modeldir.settings_of(sealed, SETTINGS_BESIDE)
        cut = exported.segmenter
        if cut.kind in LEARNED:  # files say it by their number
            cut = replace(cut, shared_vocabulary=files.shared)
        settings = replace(settings, data=exported.data, segmenter=cut, decode=exported.decode)
        trained_length = trained_length or modeldir.facts_of(sealed)["longest_source"]
    tensors = tensors_of(files, settings, *orders)
    files.refuse_rest()
    trained = trained_of(directory / CTRANSLATE2_WEIGHTS, settings, tensors, sides, trained_length)
    languages = prefixes(settings.decode, trained.source.vocabulary, trained.target.vocabulary)
    naming = Naming(named[0], named[1], None, None, *languages)
    scorer = partial(CTranslate2Scorer, directory, naming, settings.decode)
    return Imported(trained, CTRANSLATE2, scorer)


def _order(files: CTranslate2Files, names: Sequence[str]) -> list[int]:
    """Their id of each of ours: padding, the first token of the decoder, eos, unknown, the rest.

    UserError (65) for a config that asks for what nmt does not do.
    """
    where = files.directory / "config.json"
    config = files.config
    for key, values in (("add_source_bos", (False,)), ("layer_norm_epsilon", (None, EPSILON))):
        if config.get(key, values[0]) not in values:
            raise UserError(f"{where}: {key}={config[key]} cannot be read", Exit.DATA)
    padding = next((piece for piece in PADDINGS if piece in names), PADDINGS[0])
    special = [padding, *(config.get(f"{k}_token") for k in ("decoder_start", "eos", "unk"))]
    for piece in special:
        if piece not in names:
            what = " or ".join(PADDINGS) if piece == padding else piece
            raise UserError(
                f"{where}: the vocabulary has no {what}; convert a model of OpenNMT-py or "
                "OpenNMT-tf",
                Exit.DATA,
            )
    if len(set(special)) < SPECIALS:
        raise UserError(
            f"{where}: {special[1]} starts the decoder; a piece of its own must do, unlike in "
            f"models of fairseq, M2M100, NLLB, mBART and T5. {modeldir.COMPARE}",
            Exit.DATA,
        )
    first = [names.index(str(piece)) for piece in special]
    return [*first, *(i for i in range(len(names)) if i not in first)]


def _side(directory: Path, name: str, names: Sequence[str]) -> Side:
    """The segmenter in the model's directory, with the vocabulary of the model."""
    segmenter, model = directory / f"{name}.json", directory / f"{name}.spm"
    pieces = vocabulary(directory, names[SPECIALS:])
    if segmenter.exists():
        return Side(Side.from_json(manifest.read(segmenter, None)).segmenter, pieces)
    if not model.exists():
        raise UserError(
            f"{directory}: no {segmenter.name} and no {model.name}: nothing says how text becomes "
            "pieces; put the SentencePiece model of that side there",
            Exit.DATA,
        )
    return Side(sentencepiece(Unigram, model, UNNAMED), pieces)
