"""The embedded corpus: a synchronous German-English grammar whose references are exact.

Simple sentences with the word order that makes German hard for translation: verb second, verb
last, verbal brackets, separable verbs, another order of adverbials than in English, case and
agreement. Long sentences are long chains of ordinary clauses, so that a test set of longer
sentences than in training tests length alone. A sentence begins with a capital letter in
both languages, so that Moses finds its end where another one follows.

data=toy has text files of such sentences in data.root, written when they are first read.
"""

import hashlib
import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from nmt.config.data import TOY_KEYS, Data
from nmt.errors import UserError
from nmt.system import manifest
from nmt.toy import tree
from nmt.toy.draw import LEAST, Drawing
from nmt.toy.grammar import LinkedClause, english, german
from nmt.toy.lexicon import COORDINATORS, NOUNS

RECORD = "toy.json"
JOINED = "concat_seq"  # the test set of joined lines, by the name that the paper's tables give it
_TRIALS = 1000  # repeated sentences until an error reports that there are no more
_NOUN_FORMS = {form for n in NOUNS for form in (n.singular, n.plural, n.dative_plural)}


class Sentence(NamedTuple):
    """A German sentence and its one translation, as they were drawn."""

    source: str
    target: str
    clauses: list[LinkedClause]

    def columns(self) -> dict[str, str]:
        """The columns of the source, each as a line; see `nmt.toy.tree`."""
        return tree.columns(self.clauses)


def words(text: str) -> list[str]:
    """Return the words of a line; commas and full stops are words, as after Moses tokenisation."""
    return text.replace(",", " ,").replace(".", " .").split()


def draw(
    count: int, shortest: int, longest: int, seed: int | str, avoid: Collection[str] = ()
) -> list[Sentence]:
    """Draw sentences, the same for the same arguments on every machine.

    Source sentences have from `shortest` to `longest` words (see `words`), each length equally
    often (up to one sentence); none is in `avoid`. Raises UserError for impossible lengths, and
    where too few sentences of a length are left.
    """
    if not LEAST <= shortest <= longest:
        raise UserError(
            f"toy corpus: cannot draw sentences of {shortest} to {longest} words;"
            f" choose lengths from {LEAST} up, the shortest first"
        )
    rng = Random(str(seed))  # the hash of a string is the same on every machine
    lengths = [shortest + i * (longest - shortest + 1) // count for i in range(count)]
    lengths.sort(key=lambda _: rng.random())
    return [_draw_new(rng, length, avoid) for length in lengths]


def pairs(
    count: int, shortest: int, longest: int, seed: int | str, avoid: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Draw sentence pairs (source, target); see `draw`."""
    return [drawn[:2] for drawn in draw(count, shortest, longest, seed, avoid)]


def _draw_new(rng: Random, length: int, avoid: Collection[str]) -> Sentence:
    for _ in range(_TRIALS):
        clauses = Drawing(rng).sentence(length)
        source = _text(german(clauses))
        if source not in avoid:
            return Sentence(source, _text(english(clauses)), clauses)
    raise UserError(
        f"toy corpus: no further sentences of {length} words; ask for fewer pairs, or longer ones"
    )


def _text(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" ,", ",").replace(" .", ".")


def ensure_text(data: Data) -> None:
    """Write the files of data=toy in data.root, unless they are there; other corpora have files.

    They are written once, whole or not at all, and never replaced. Raises UserError for settings
    that the grammar cannot meet, for a root with anything else in it (edited text, or text of other
    settings or of another version of the grammar), and as `manifest.ensure` does.
    """
    if data.kind != "toy":
        return
    if data.root is None:
        raise UserError("data.root=null: data=toy writes its text there; name a directory")
    root, record = Path(data.root), _record(data)
    if not (os.path.isdir(root) and any(root.iterdir())):  # noqa: PTH112 (Path.is_dir may raise)
        manifest.ensure(root, partial(write_text, data), f"data.root={root}")
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
    keys = ("source_language", "target_language", *TOY_KEYS)
    settings = {f"data.{key}": getattr(data, key) for key in keys}
    return {"grammar": hashlib.sha256(repr(sample).encode()).hexdigest()[:12], **settings}


def write_text(data: Data, directory: Path) -> None:
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
