"""Marian's own models (OPUS-MT's releases, Firefox's teachers), read from their directory.

That is an npz with its vocabulary: a list of pieces with source.spm and target.spm beside it, or a
.spm, whose ids then count. decoder.yml names the files and says how to search, where there is one.
"""

from functools import partial
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange import marian_ids, marian_npz, marian_weights
from nmt.exchange.adapter import CTRANSLATE2, Imported
from nmt.exchange.files import sentencepiece, trained_of
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE
from nmt.exchange.marian_npz_adapter import MarianNpzScorer
from nmt.exchange.marian_weights import MARIAN
from nmt.exchange.settings import UNNAMED, settings_of, sinusoids
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram

SIDES = {"source": ("source", "src"), "target": ("target", "trg", "tgt")}  # in names of files
VOCABULARIES = [f"*vocab*.{kind}" for kind in ("yml", "spm", "json", "txt")]
UNREAD = (".fsv", ".bin")  # factors, and weights packed for one processor


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model with its segmenters; it is not compared with other software here.

    `trained_length`: pieces of the longest source in training, which no file tells; None: it stays
    unknown. Raises UserError (65) for a file that is missing, damaged, or says what is not
    understood here.
    """
    decoder, values = _decoder(directory)
    (where,) = _files(directory, values.get("models"), 1, "*.npz")
    tensors, options = marian_npz.read(where)
    shape = marian_npz.shape_of(where, options)
    found = _files(directory, values.get("vocabs"), 2, *VOCABULARIES)
    vocabularies = [found[0], found[-1]]
    segmenters = [
        sentencepiece(Unigram, v, UNNAMED)  # cuts whole lines, the code of a language included
        if v.suffix == ".spm"
        else sentencepiece(MarianSegmenter, directory / f"{side}.spm", UNNAMED)
        for side, v in zip(SIDES, vocabularies, strict=True)
    ]
    source, target = both = [
        marian_ids.of(v, marian_ids.parse(manifest.read_bytes(v), v), {EOS_PIECE, UNK_PIECE})
        for v in vocabularies
    ]
    shared = source.to_json() == target.to_json()
    if shape["tie"] == "all" and not shared:
        raise UserError(
            f"{where}: one embedding, but {found[0].name} and {found[-1].name} number pieces "
            "otherwise; name the vocabulary of both sides in decoder.yml under vocabs",
            Exit.DATA,
        )
    overrides = [*sinusoids(*marian_npz.SINUSOIDS), *marian_npz.search_of(decoder, values)]
    settings = settings_of(overrides, shape, trained_length, shared)
    ours = marian_weights.to_ours(where, tensors, settings.model, both, MARIAN)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, both, strict=True)]
    trained = trained_of(where, settings, ours, sides, trained_length)
    return Imported(trained, CTRANSLATE2, partial(MarianNpzScorer, where, settings.decode, *both))


def _decoder(directory: Path) -> tuple[Path, dict[str, Any]]:
    """decoder.yml, or the one of another name; without one, the defaults of Marian count."""
    named = directory / "decoder.yml"
    found = [named] if named.exists() else sorted(directory.glob("*.decoder.yml"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{directory}: {names}; rename one to {named.name}", Exit.DATA)
    where = found[0] if found else named
    return where, marian_npz.parse(manifest.read_bytes(where), str(where)) if found else {}


def _files(directory: Path, named: Any, most: int, *patterns: str) -> list[Path]:
    """The files that decoder.yml names, wherever they were, or else those of the first pattern."""
    names = named if isinstance(named, list) else [named] if named else []
    found = [directory / name for name in dict.fromkeys(Path(str(name)).name for name in names)]
    found = found or next(filter(None, (sorted(directory.glob(p)) for p in patterns)), [])
    if not 0 < len(found) <= most or any(path.suffix in UNREAD for path in found):
        raise UserError(
            f"{directory}: {', '.join(path.name for path in found) or f'no {patterns[0]}'}: "
            f"expected {'one file' if most == 1 else 'one or two files'}, neither factored (.fsv) "
            "nor packed (.bin), under models and vocabs of decoder.yml",
            Exit.DATA,
        )
    if (
        not names
        and len(found) == 2
        and not all(
            any(word in path.name.lower() for word in words)
            for words, path in zip(SIDES.values(), found, strict=True)
        )
    ):
        raise UserError(
            f"{directory}: {found[0].name}, {found[1].name}: the names do not say which is of the "
            "source; name both in decoder.yml under vocabs, the source first",
            Exit.DATA,
        )
    return found
