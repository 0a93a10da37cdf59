"""Read and write the tokenizers of M2M100 and NLLB.

Both cut text by sentencepiece.bpe.model. M2M100 numbers the pieces in vocab.json, and its languages
after them; NLLB numbers all in tokenizer.json. Transformers 5 saves NLLB without the model.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from nmt.errors import UserError
from nmt.exchange.interface import invalid
from nmt.exchange.marian_ids import MarianIds
from nmt.exchange.requirements import sentencepiece_of
from nmt.exchange.settings import sentencepiece
from nmt.exchange.transformers_engine import M2M100, NLLB, PIECES, TOKENIZER, TOKENIZER_CONFIG
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import SPACE, Unigram
from nmt.text.vocab import Vocabulary

SPM = "sentencepiece.bpe.model"
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]  # by id; <s> is our first piece
PAD, EOS, UNK = 1, 2, 3
MADE_UP = "madeupword"  # with a number: name of a row of the embedding without a piece
# ligature, full width, fraction, accent, quotes, other scripts, thin space: text to normalise
PROOF = "\ufb01n \uff21\u00bd e\u0301\u2026 \u201ex\u201c \u4e2d \u0645 1\u2009000"


def read_segmenter(directory: Path, tokenizer: Any, language: str) -> Unigram:
    """The SentencePiece model of a directory, or one rebuilt from tokenizer.json."""
    if (directory / SPM).exists():
        return sentencepiece(Unigram, directory / SPM, language)
    try:
        segmenter = Unigram(Tokenizer("none", "none", language), _rebuild(tokenizer))
        wrong = next(_differences(segmenter, tokenizer), None)
    except Exception as error:  # of another normalizer, or a piece that SentencePiece refuses
        wrong = str(error)
    if wrong is not None:
        what = f"the file is missing, and {TOKENIZER} does not cut text as a model of SentencePiece"
        advice = f"would ({wrong[:80]!r}); copy the file from the model that this one was made of"
        raise invalid(directory / SPM, f"{what} {advice}")
    return segmenter


def _rebuild(tokenizer: Any) -> bytes:
    """A SentencePiece model of byte-pair encoding, whose first pieces are merged first."""
    pb2: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    values = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {token["content"] for token in values["added_tokens"]}
    ids: Mapping[str, int] = values["model"]["vocab"]
    steps = values["normalizer"].get("normalizers", [values["normalizer"]])
    (charsmap,) = (s["precompiled_charsmap"] for s in steps if s["type"] == "Precompiled")
    model = pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.normalizer_spec.precompiled_charsmap = base64.b64decode(charsmap)
    for kind, piece in enumerate(("<unk>", "<s>", "</s>")):
        model.pieces.add(piece=piece, score=0, type=3 if kind else 2)  # control, unknown
    for rank, piece in enumerate(p for p in sorted(ids, key=ids.__getitem__) if p not in added):
        model.pieces.add(piece=piece, score=-rank)
    data: bytes = model.SerializeToString()
    return data


def _differences(segmenter: Unigram, tokenizer: Any) -> Iterator[str]:
    draw, ids = Random(1), tokenizer.get_vocab()
    lines = [PROOF, *("".join(draw.choices(segmenter.pieces, k=30)) for _ in range(300))]
    for line in (" ".join(line.replace(SPACE, " ").split()) for line in lines):
        theirs = tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        ours = [ids.get(piece, UNK) for piece in segmenter.encode(line)]
        if ours != theirs:
            yield line


def number(vocabulary: Vocabulary) -> MarianIds:
    """The ids of a vocabulary whose first piece is <s>."""
    others = range(len(FIRST), len(FIRST) - 1 + len(vocabulary.to_json()))
    return MarianIds(vocabulary, [PAD, EOS, EOS, UNK, 0, *others])


def to_files(side: Side, languages: Sequence[str]) -> dict[str, bytes]:
    """The files of a tokenizer, by name; UserError for a vocabulary without its languages.

    tokenizer.json of NLLB is left out: transformers makes it.
    """
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    first, *others = side.vocabulary.to_json()
    pieces = [first, *FIRST[1:], *others]
    known = [piece for piece in pieces if not piece.startswith(MADE_UP)]
    source, target = (language.strip("_") for language in languages)
    config: dict[str, Any] = {"src_lang": source, "tgt_lang": target}
    files = {SPM: sentencepiece_of(side)}
    for name, codes in FAIRSEQ_LANGUAGE_CODES.items():
        bracketed = [f"__{code}__" for code in codes]
        if known[-len(bracketed) :] == bracketed:
            own = {piece: number for number, piece in enumerate(known[: -len(bracketed)])}
            config |= {"tokenizer_class": M2M100[1], "language_codes": name}
            config |= {"additional_special_tokens": bracketed}
            config |= {"num_madeup_words": len(pieces) - len(known)}
            return files | {PIECES: manifest.dump(own), TOKENIZER_CONFIG: manifest.dump(config)}
    codes = [piece for piece in known if re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", piece)]
    if first != FIRST[0] or not codes:
        what = "it has not the languages of M2M100 or NLLB; export --to ctranslate2"
        raise UserError(f"the vocabulary cannot be exported to M2M100: {what}")
    config |= {"tokenizer_class": NLLB[1], "additional_special_tokens": codes}
    of_text = {*side.segmenter.pieces} - {*codes}
    config["added_tokens_decoder"] = {
        str(number): {"content": piece, "special": True, "lstrip": piece == "<mask>"}
        for number, piece in enumerate(known)
        if piece not in of_text
    }
    return files | {TOKENIZER_CONFIG: manifest.dump(config)}
