"""Marian's own models (OPUS-MT's releases, Firefox's teachers), read from their directory.

That is an npz with its vocabulary: a .yml with source.spm and target.spm beside it, or a .spm,
whose ids then count. decoder.yml names the files and says how to search, where there is one.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.exchange import marian_ids, marian_npz, marian_weights
from nmt.exchange.adapter import CTRANSLATE2, Imported
from nmt.exchange.files import sentencepiece, trained_of
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE, MarianIds
from nmt.exchange.marian_npz_scorer import MarianNpzScorer
from nmt.exchange.marian_weights import MARIAN
from nmt.exchange.settings import UNNAMED, settings_of, sinusoids
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram

SIDES = {"source": ("source", "src"), "target": ("target", "trg", "tgt")}  # in names of files


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model with its segmenters; it is not compared with other software here.

    `trained_length`: pieces of the longest source in training, which no file tells; None: it stays
    unknown. Raises UserError (65) for a file that is missing, damaged, or says what is not
    understood here.
    """
    decoder, values = _decoder(directory)
    (where,) = _files(directory, values, "models", 1, "*.npz")
    tensors, options = marian_npz.read(where)
    shape = marian_npz.read_options(where, options) | {"target_bos": False}
    search = marian_npz.read_search(decoder, values)
    found = _files(directory, values, "vocabs", 2, "*vocab*.yml", "*vocab*.spm")
    vocabularies = [found[0], found[-1]]
    if len(found) == 2 and not values.get("vocabs"):
        _check_sides(directory, vocabularies)
    segmenters = [
        sentencepiece(Unigram, v, UNNAMED)  # cuts whole lines, the code of a language included
        if v.suffix == ".spm"
        else sentencepiece(MarianSegmenter, directory / f"{side}.spm", UNNAMED)
        for side, v in zip(SIDES, vocabularies, strict=True)
    ]
    source, target = both = [_ids(v) for v in vocabularies]
    overrides = [
        *sinusoids(*marian_npz.SINUSOIDS),
        *(f"decode.beam_size={search.beam_size}", f"decode.alpha={search.normalize}"),
        f"decode.unknown={'allow' if search.allow_unk else 'forbid'}",
        "decode.stop=shrinking",
    ]
    shared = source.to_json() == target.to_json()
    if shape["tie"] == "all" and not shared:
        raise UserError(
            f"{where}: tied-embeddings-all, but {found[0].name} and {found[-1].name} number pieces "
            "otherwise; name the vocabulary of both sides in decoder.yml under vocabs",
            Exit.DATA,
        )
    settings = settings_of(overrides, shape, trained_length, shared)
    ours = marian_weights.to_ours(where, tensors, settings.model, both, MARIAN)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, both, strict=True)]
    trained = trained_of(where, settings, ours, sides, trained_length)
    scorer = partial(MarianNpzScorer, where, settings.decode, *both)
    return Imported(trained, CTRANSLATE2, scorer)


def _decoder(directory: Path) -> tuple[Path, dict[str, Any]]:
    """decoder.yml, or the one of another name; without one, the defaults of Marian count."""
    named = directory / "decoder.yml"
    found = [named] if named.exists() else sorted(directory.glob("*.decoder.yml"))
    if len(found) > 1:
        raise UserError(
            f"{directory}: {', '.join(f.name for f in found)}; rename one to {named.name}",
            Exit.DATA,
        )
    if not found:
        return named, {}
    return found[0], marian_npz.parse(manifest.read_bytes(found[0]), str(found[0]))


def _files(
    directory: Path, values: dict[str, Any], key: str, most: int, *patterns: str
) -> list[Path]:
    """The files that decoder.yml names, wherever they were, or else those of the first pattern."""
    names = values.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{directory}: decoder.yml: {key}: expected names of files", Exit.DATA)
    globbed = (sorted(directory.glob(pattern)) for pattern in patterns)
    found = [directory / name for name in dict.fromkeys(Path(name).name for name in names)]
    found = found or next(filter(None, globbed), [])
    suffixes = {Path(pattern).suffix for pattern in patterns}
    if not 0 < len(found) <= most or any(path.suffix not in suffixes for path in found):
        raise UserError(
            f"{directory}: {', '.join(path.name for path in found) or f'no {patterns[0]}'}: "
            f"expected {'one' if most == 1 else 'one or two'} of {' or '.join(sorted(suffixes))}; "
            f"say which in decoder.yml under {key} (factors, .fsv, cannot be read)",
            Exit.DATA,
        )
    return found


def _check_sides(directory: Path, vocabularies: Sequence[Path]) -> None:
    """Raise UserError unless the names of files in alphabetical order say source, then target."""
    names = [path.name for path in vocabularies]
    for words, name in zip(SIDES.values(), names, strict=True):
        if not any(word in name.lower() for word in words):
            raise UserError(
                f"{directory}: {', '.join(names)}: the names do not say which is of the source; "
                "name both in decoder.yml under vocabs, the source first",
                Exit.DATA,
            )


def _ids(where: Path) -> MarianIds:
    """The pieces of a side by their ids."""
    data = manifest.read_bytes(where)
    is_model = where.suffix == ".spm"
    ids = marian_ids.of_sentencepiece(data) if is_model else marian_ids.parse_lines(data, where)
    return marian_ids.of(where, ids, {EOS_PIECE, UNK_PIECE})
