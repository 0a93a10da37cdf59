"""From text files to a prepared corpus: scan, clean, learn, number, store; once for all runs.

A prepared corpus is in <cache>/<name>-<fingerprint>; the fingerprint covers the content of the
files and every setting that matters, so that an existing directory is the right one.
"""

import hashlib
import importlib.metadata
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.config.check import to_plain
from nmt.config.data import TOY_KEYS, Data, Segmentation, columns_of, symbols_of
from nmt.config.settings import is_path
from nmt.corpus import scan
from nmt.corpus.pairs import HASHES, SIDES, Pairs, read_pairs
from nmt.corpus.sampling import make_samplers
from nmt.corpus.scan import ParallelText
from nmt.corpus.steps import Preparation, hash_pair
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.text.lines import read_parallel, read_text
from nmt.text.protection import read_patterns
from nmt.text.side import Side, Sides
from nmt.text.unigram import language_codes
from nmt.text.vocab import UNK

log = logging.getLogger(__name__)
FORMAT = 6  # raise it when the same input results in another prepared corpus
FACTS, REPORT = "facts.json", "report.json"
# settings of where text is and how fast it is prepared, which do not change the result
IRRELEVANT_KEYS = (
    {*TOY_KEYS}  # they decide the text, which is hashed itself
    | {"name", "root", "cache", "workers", "columns", "corpora", "protected"}
    | {"join", "join_share", "join_length", "join_within"}  # lines are joined in training
    | {"bpe_dropout", "subword_alpha", "subword_nbest"}  # and segmented at random
    | {f"{split}_{side}" for split in ("train", "dev", "test") for side in SIDES}
)
LIBRARIES = ("numpy", "sacremoses", "sentencepiece", "subword-nmt")


class Prepared(NamedTuple):
    """A corpus ready to train on."""

    path: Path
    train: Pairs
    dev: Pairs
    source: Side
    target: Side
    facts: dict[str, Any]
    report: dict[str, Any]  # pairs that were kept or dropped; `nmt.corpus.report` shows it


def prepare(data: Data, segmenter: Segmentation, sides: Sides | None = None) -> Prepared:
    """Prepare a corpus, unless it is prepared already.

    With `sides`, of a trained model or of files, no segmenter is learned: they segment and number
    the text, and `segmenter` is only recorded. Raises UserError: 66 if a file is missing, 65 if its
    content cannot be used, 73 or 74 if the cache cannot be written.
    """
    _check_sides(data, segmenter, sides)
    texts = scan.scan_files(data)
    digest = fingerprint(data, segmenter, sides, texts)
    final = Path(data.cache) / f"{data.name}-{digest[:12]}"

    names = f"{data.train_source}, {data.train_target}"
    if data.corpora:
        names = ", ".join(f"{n} {c.tag or ''}".strip() for n, c in sorted(data.corpora.items()))
    log.info("corpus: %s (%s)", data.name, names)

    def make(directory: Path) -> None:
        counted = Preparation(data, segmenter, sides, texts).write(directory)
        versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
        (directory / REPORT).write_bytes(manifest.dump(counted | {"versions": versions}))
        (directory / FACTS).write_bytes(manifest.dump(_facts(digest, counted)))

    manifest.ensure(final, make, f"data.cache={data.cache}")
    return load(final)


def count_overlap(prepared: Prepared, source: Path, target: Path) -> tuple[int, int]:
    """Count pairs of a text that are also training pairs, and all its pairs.

    Raises UserError: 66 if a file is missing, 65 if its content cannot be used.
    """
    source_words, target_words = (
        side.segmenter.tokenizer for side in (prepared.source, prepared.target)
    )
    lines = read_text(source)
    pairs = map(
        prepared.source.protection.protect_pair, lines, read_parallel(target, lines, source)
    )
    words = ((source_words.tokenize(a), target_words.tokenize(b)) for a, b in pairs)
    hashes = [hash_pair(a, b, source_words.symbols) for a, b in words]
    trained = np.fromfile(prepared.path / "train" / "hashes", HASHES)
    return int(np.isin(np.array(hashes, HASHES), trained).sum()), len(hashes)


def _check_sides(data: Data, segmenter: Segmentation, sides: Sides | None) -> None:
    """Raise UserError (2) for symbols or ways to sample that existing segmenters lack."""
    if sides is None and segmenter.kind == "imported":
        raise UserError(
            "segmenter.kind=imported: comes with a model that was imported; give its directory "
            "as trainer.init_from"
        )
    if sides is not None:
        make_samplers(data, sides)
    patterns = read_patterns(data.protected)
    for side in sides or ():
        if patterns and patterns != list(side.segmenter.tokenizer.protected):
            raise UserError(
                f"data.protected={data.protected}: has other patterns than the model that training "
                "starts from, whose patterns stay; leave it out, or mend the file"
            )
        for symbol in symbols_of(data):
            if len(ids := side.ids(symbol)) != 2 or ids[0] == UNK:
                key = "user_symbols" if symbol in data.user_symbols else "corpora, tag"
                raise UserError(
                    f"data.{key}: {symbol} is no piece of the model that training starts "
                    "from; train it with that, or leave it out"
                )


def fingerprint(
    data: Data,
    segmenter: Segmentation,
    sides: Sides | None = None,
    texts: dict[str, list[ParallelText]] | None = None,
) -> str:
    """Return a hash of the content of a corpus's files and each setting that matters.

    All text is read for it, prepared or not: only that shows that none of it has changed. `texts`:
    as `scan_files` returned them, if that was done. Raises UserError: 66 if a file is missing, 65
    if its content cannot be used.
    """
    texts = texts or scan.scan_files(data)
    per = columns_of(data)
    facts: dict[str, Any] = {
        "format": FORMAT,
        "data": {key: value for key, value in to_plain(data).items() if key not in IRRELEVANT_KEYS},
        "segmenter": {
            key: value
            for key, value in to_plain(segmenter).items()
            if not is_path(f"segmenter.{key}")  # `sides` has what is in these files
        },
        "files": {
            split: [file.sha256 for p in parts for file in (p.source, p.target)]
            for split, parts in texts.items()
        },
        "columns": {
            split: [[n, per[n], column.sha256] for n, column in parts[0].columns.items()]
            for split, parts in texts.items()
            if parts
        },
    }
    if data.corpora:
        facts["corpora"] = {
            split: [(p.corpus, p.tag) for p in parts if p.corpus] for split, parts in texts.items()
        }
    if sides is not None:
        facts["sides"] = [side.to_json() for side in sides]
    elif patterns := read_patterns(data.protected):
        facts["protected"] = patterns
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def load(path: Path, verify: bool = True) -> Prepared:
    """Open a prepared corpus; UserError (65) if it is not as it was written.

    verify=False reads it without comparing its checksums, where another process does.
    """
    if verify and (problem := manifest.find_damage(path)):
        raise UserError(f"{problem}; prepare the corpus again", Exit.DATA)
    source, target = (Side.from_json(manifest.read(path / f"{side}.json", None)) for side in SIDES)
    facts, report = (manifest.read(path / name, None) for name in (FACTS, REPORT))
    codes = frozenset(language_codes(source.vocabulary).values())
    train, dev = (read_pairs(path / split, codes) for split in ("train", "dev"))
    return Prepared(path, train, dev, source, target, facts, report)


def _facts(fingerprint: str, counted: dict[str, Any]) -> dict[str, Any]:
    train, dev = counted["train"], counted["dev"]
    facts: dict[str, Any] = {"fingerprint": fingerprint}
    facts |= {f"train_{measure}": count for measure, count in train["kept"].items()}
    facts |= {f"longest_{side}": train["longest"][side] for side in SIDES}
    facts |= {f"{side}_vocabulary": counted["vocabulary"][side] for side in SIDES}
    if "corpora" in train:
        facts["corpora"] = {n: c["kept"]["pairs"] for n, c in train["corpora"].items()}
    return facts | {"dev_pairs": dev["kept"]["pairs"]}
