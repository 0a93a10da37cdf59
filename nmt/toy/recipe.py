"""data=toy: text files of the embedded grammar in data.root, written when they are first read."""

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmt.config.data import RECIPE, Data
from nmt.errors import UserError
from nmt.system import cache, manifest
from nmt.toy import draw, words
from nmt.toy.lexicon import COORDINATORS, NOUNS

RECORD = "toy.json"
JOINED = "concat_seq"  # the test set of joined lines, by the name that the paper's tables give it
_NOUN_FORMS = {form for n in NOUNS for form in (n.singular, n.plural, n.dative_plural)}


def ensure_text(data: Data) -> None:
    """Write the files of data=toy in data.root, unless they are there; other corpora have files.

    They are written once, whole or not at all, and never replaced. Raises UserError for settings
    that the grammar cannot meet, for a root with anything else in it (edited text, or text of other
    settings or of another version of the grammar), and as `cache.ensure` does.
    """
    if data.kind != "toy":
        return
    if data.root is None:
        raise UserError("data.root=null: data=toy writes its text there; name a directory")
    root, record = Path(data.root), _record(data)
    if not (os.path.isdir(root) and any(root.iterdir())):  # noqa: PTH112 (Path.is_dir may raise)
        cache.ensure(root, partial(write, data), f"data.root={root}")
    try:  # another process may have written it by other settings
        manifest.VerifiedDirectory(root, "a directory that data=toy wrote").verify()
        written = manifest.read(root / RECORD)
    except UserError as error:
        has_record = (root / RECORD).exists()  # otherwise, this may be a user's text
        hint = "remove it to have it written again" if has_record else "for your text: data=files"
        raise UserError(f"{error}; {hint}", error.code) from None
    if key := next((key for key in record if written.get(key) != record[key]), None):
        raise UserError(
            f"data.root={root}: was written with {key}={written.get(key)}, which is "
            f"{record[key]} now; name another directory"
        )


def _record(data: Data) -> dict[str, Any]:
    """All that decides on the text: the grammar, by a sample of it, and settings."""
    sample = [(s.source, s.target, s.columns()) for s in draw(40, 4, 30, seed=0)]
    keys = ("source_language", "target_language", *RECIPE)
    settings = {f"data.{key}": getattr(data, key) for key in keys}
    return {"grammar": hashlib.sha256(repr(sample).encode()).hexdigest()[:12], **settings}


def write(data: Data, directory: Path) -> None:
    """Write train, dev and test text, the columns of each source, joined test lines and a record.

    No source sentence of one part occurs in another. Raises UserError for impossible sizes, and
    languages that the grammar has not.
    """
    source, target = data.source_language, data.target_language
    if source in ("en", target) or target == "de":
        raise UserError(
            f"data.source_language={source} data.target_language={target}: the embedded grammar "
            "translates German to English; leave both out, or train on text of yours: data=files"
        )
    seed, train = data.corpus_seed, (data.train_shortest, data.train_longest)
    drawn = {"test": draw(data.test_pairs, data.test_shortest, data.test_longest, f"test {seed}")}
    seen = {s.source for s in drawn["test"]}
    drawn["dev"] = draw(data.dev_pairs, *train, f"dev {seed}", seen)
    seen |= {s.source for s in drawn["dev"]}
    drawn["train"] = draw(data.train_pairs, *train, f"train {seed}", seen)
    files: dict[str, list[str]] = {}
    for part, sentences in drawn.items():
        rows = [{source: s.source, target: s.target} | s.columns() for s in sentences]
        files |= {f"{part}.{ending}": [row[ending] for row in rows] for ending in rows[0]}
    joined = join_sentences([s[:2] for s in drawn["test"]], data.train_longest)
    files[f"{JOINED}.{source}"] = [line for line, _ in joined]
    files[f"{JOINED}.{target}"] = [line for _, line in joined]
    for name, lines in files.items():
        (directory / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    (directory / RECORD).write_bytes(manifest.dump(_record(data)))


def join_sentences(pairs: Sequence[tuple[str, str]], longest: int) -> list[tuple[str, str]]:
    """Join each two sentences of at most `longest` words to one of the grammar, by `, und`.

    A full stop within a line would be unknown to models of this corpus.
    """
    german_and, english_and = next(iter(COORDINATORS.items()))
    short = [pair for pair in pairs if len(words(pair[0])) <= longest]
    for i, (source, target) in enumerate(short):
        if i % 2:  # only a noun keeps its capital within a sentence
            is_noun = words(source)[0] in _NOUN_FORMS
            source = source if is_noun else source[:1].lower() + source[1:]
            target = target[:1].lower() + target[1:]
        elif i + 1 < len(short):
            source = f"{source.removesuffix('.')}, {german_and}"
            target = f"{target.removesuffix('.')}, {english_and}"
        short[i] = source, target
    twos = [short[i : i + 2] for i in range(0, len(short), 2)]
    return [(" ".join(s for s, _ in two), " ".join(t for _, t in two)) for two in twos]
