"""The vocabulary of an M2M100 or NLLB model, in the files of its tokenizer.

Both cut text by sentencepiece.bpe.model. M2M100 numbers the pieces in vocab.json, and its languages
after them; NLLB all of them in tokenizer.json. Rows of the embedding that are left have no piece.
"""

import json
import re
from collections.abc import Container, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange.files import in_order, vocabulary
from nmt.exchange.marian_ids import MarianIds
from nmt.exchange.transformers_config import EOS, PAD
from nmt.system import manifest
from nmt.text.unigram import Unigram
from nmt.text.vocab import Vocabulary

SPM, PIECES, TOKENIZER = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
CONFIG = "tokenizer_config.json"
CLASSES = ("M2M100Tokenizer", "NllbTokenizer")  # of transformers, which may end in Fast
UNTOLD = ("None", "TokenizersBackend")  # where the file names none, or whatever tokenizer.json is
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]  # their first ids; <s> is our first piece
MADE_UP, MOST_MADE_UP = "madeupword", 1000  # rows without a piece; NLLB has 2, M2M100 8
M2M100 = (  # its languages, in their order
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu "
    "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms "
    "my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur "
    "uz vi wo xh yi yo zh zu"
)
BRACKETED = [f"__{code}__" for code in M2M100.split()]


def read(directory: Path, rows: int) -> tuple[MarianIds, list[str | None]]:
    """The ids of an embedding of so many rows, and the languages that its tokenizer names.

    UserError (65) for what does not fit.
    """
    where = directory / CONFIG
    values = manifest.read(where, None) if where.exists() else {}
    name = values.get("tokenizer_class")
    if str(name).removesuffix("Fast") not in (*CLASSES, *UNTOLD):
        raise UserError(
            f"{where}: tokenizer_class={name}: only {' and '.join(CLASSES)} are known; another one "
            "may put other pieces around a line",
            Exit.DATA,
        )
    for key, usual in (("legacy_behaviour", False), ("language_codes", "m2m100")):
        if (value := values.get(key, usual)) != usual:
            raise UserError(
                f"{where}: {key}={json.dumps(value)}: only {json.dumps(usual)} can be read",
                Exit.DATA,
            )
    if (where := directory / PIECES).exists():
        pieces = [*in_order(where, manifest.read(where, None)), *BRACKETED]
    else:
        where = directory / TOKENIZER
        tokenizer = manifest.read(where, None)
        try:
            added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
            pieces = in_order(where, dict(tokenizer["model"]["vocab"]) | added)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{where}: holds no vocabulary of BPE", Exit.DATA) from None
    if pieces[: len(FIRST)] != FIRST:
        raise UserError(f"{where}: its first pieces must be {', '.join(FIRST)}", Exit.DATA)
    if not 0 <= rows - len(pieces) <= MOST_MADE_UP:
        raise UserError(
            f"{where}: {len(pieces)} pieces, but config.json has a vocab_size of {rows}", Exit.DATA
        )
    pieces += [f"{MADE_UP}{number}" for number in range(rows - len(pieces))]
    known = vocabulary(where, [FIRST[0], *pieces[len(FIRST) :]])
    return ids_of(known), [values.get("src_lang"), values.get("tgt_lang")]


def classes(files: Container[str]) -> tuple[str, str]:
    """The classes of transformers that read a directory of these files: model and tokenizer."""
    return "M2M100ForConditionalGeneration", CLASSES[PIECES not in files]


def numberings(*vocabularies: Vocabulary) -> list[MarianIds]:
    """Their ids of the vocabularies of both sides."""
    return [*map(ids_of, vocabularies)]


def ids_of(vocabulary: Vocabulary) -> MarianIds:
    """Their ids of a vocabulary whose first piece is <s>."""
    others = range(len(FIRST), len(FIRST) - 1 + len(vocabulary.to_json()))
    return MarianIds(vocabulary, [EOS, FIRST.index("<unk>"), 0, *others], start=EOS, pad=PAD)


def to_files(
    segmenter: Unigram, vocabulary: Vocabulary, languages: Sequence[str]
) -> dict[str, bytes]:
    """The files of a tokenizer, by name, and of its languages; UserError for other pieces."""
    first, *others = vocabulary.to_json()
    pieces = [first, *FIRST[1:], *others]
    known = [piece for piece in pieces if not piece.startswith(MADE_UP)]
    source, target = (language.strip("_") for language in languages)
    config: dict[str, Any] = {"src_lang": source, "tgt_lang": target}
    files = {SPM: segmenter.model}
    if known[-len(BRACKETED) :] == BRACKETED:
        own = {piece: number for number, piece in enumerate(known[: -len(BRACKETED)])}
        config |= {"tokenizer_class": CLASSES[0], "additional_special_tokens": BRACKETED}
        config |= {"num_madeup_words": len(pieces) - len(known)}
        return files | {PIECES: manifest.dump(own), CONFIG: manifest.dump(config)}
    codes = [piece for piece in known if re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", piece)]
    if first != FIRST[0] or not codes:
        raise UserError(
            "the vocabulary cannot be exported to M2M100: it has not the languages of M2M100 or "
            "NLLB; export --to ctranslate2"
        )
    config |= {"tokenizer_class": CLASSES[1], "additional_special_tokens": codes}
    files[CONFIG] = manifest.dump(config)
    return files | {TOKENIZER: _converted(files, {piece: i for i, piece in enumerate(known)})}


def _converted(files: dict[str, bytes], ids: dict[str, int]) -> bytes:
    """tokenizer.json of NLLB: what transformers makes of the other files, with these ids."""
    from transformers import NllbTokenizer

    with TemporaryDirectory() as work:
        for name, content in files.items():
            (Path(work) / name).write_bytes(content)
        tokenizer: Any = NllbTokenizer.from_pretrained(work, local_files_only=True)
    values = json.loads(tokenizer.backend_tokenizer.to_str())
    values["model"]["vocab"] = ids
    values["post_processor"] = None  # it is made anew, of the languages
    added = [token | {"id": ids[token["content"]]} for token in values["added_tokens"]]
    return manifest.dump(values | {"added_tokens": sorted(added, key=lambda token: token["id"])})
