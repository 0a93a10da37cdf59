"""The embedded corpus: a synchronous German-English grammar whose references are exact.

Simple sentences with the word order that makes German hard for translation: verb second, verb
last, verbal brackets, separable verbs, another order of adverbials than in English, case and
agreement. Long sentences are long chains of ordinary clauses, so that a test set of longer
sentences than those of training tests length alone. A sentence begins with a capital letter in
both languages, so that Moses finds its end where another one follows.
"""

from collections.abc import Collection
from pathlib import Path
from random import Random

from nmt import config
from nmt.data.toy import tree
from nmt.data.toy.draw import LEAST, sentence
from nmt.data.toy.grammar import english, german
from nmt.data.toy.lexicon import COORDINATORS
from nmt.data.toy.parser import parse, within
from nmt.errors import UserError

_TRIALS = 1000  # repeated sentences until an error reports that there are no more


def words(text: str) -> list[str]:
    """Return the words of a line; commas and full stops are words, as after Moses tokenisation."""
    return text.replace(",", " ,").replace(".", " .").split()


def translate(source: str) -> str:
    """Return the one translation of a sentence; ValueError if it is not of the grammar."""
    return _text(english(parse(words(source))))


def together(*sentences: tuple[str, str]) -> list[tuple[str, str]]:
    """Return pairs as parts of one sentence: joined by a space, they are a pair of the corpus.

    All but the last end in `, und` instead of a full stop; all but the first begin as within a
    sentence. ValueError for a source that is no sentence of the grammar.
    """
    german_and, english_and = next(iter(COORDINATORS.items()))
    parts = []
    for number, (source, target) in enumerate(sentences, start=1):
        if number > 1:
            source = _text(within(german(parse(words(source)))))
            target = target[:1].lower() + target[1:]
        if number < len(sentences):
            source = f"{source.removesuffix('.')}, {german_and}"
            target = f"{target.removesuffix('.')}, {english_and}"
        parts.append((source, target))
    return parts


def columns(source: str) -> dict[str, str]:
    """Return the columns of a source sentence, each as a line; see `nmt.data.toy.tree`.

    ValueError if it is no sentence of the grammar.
    """
    columns = tree.columns(parse(words(source)))
    return {name: " ".join(map(str, values)) for name, values in columns.items()}


def pairs(
    count: int, shortest: int, longest: int, seed: int | str, avoid: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Draw sentence pairs (source, target), the same for the same arguments on every machine.

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
    return [_new_pair(rng, length, avoid) for length in lengths]


def write_toy(data: config.Toy, directory: Path) -> dict[str, Path]:
    """Write train, dev and test text into a directory; returns paths by train_source and so on.

    Each source has its columns, at train_heads and so on. No source sentence of one part occurs
    in another. Raises UserError for impossible sizes, and languages that the grammar has not.
    """
    languages = {"source": data.source_language, "target": data.target_language}
    named = " ".join(f"data.{side}_language={code}" for side, code in languages.items())
    if languages["source"] in ("en", languages["target"]) or languages["target"] == "de":
        raise UserError(
            f"{named}: the embedded grammar translates German to English; leave both out, or train "
            "on text of yours: data=files"
        )
    seed = data.corpus_seed
    train = (data.train_shortest, data.train_longest)
    drawn = {"test": pairs(data.test_pairs, data.test_shortest, data.test_longest, f"test {seed}")}
    seen = {source for source, _ in drawn["test"]}
    drawn["dev"] = pairs(data.dev_pairs, *train, f"dev {seed}", seen)
    seen |= {source for source, _ in drawn["dev"]}
    drawn["train"] = pairs(data.train_pairs, *train, f"train {seed}", seen)
    paths: dict[str, Path] = {}
    endings = languages | {name: name for name in config.TOY_COLUMNS}
    for part, lines in drawn.items():
        rows = [{"source": one, "target": other} | columns(one) for one, other in lines]
        for name, ending in endings.items():
            path = paths[f"{part}_{name}"] = directory / f"{part}.{ending}"
            path.write_bytes("".join(row[name] + "\n" for row in rows).encode())
    return paths


def _text(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" ,", ",").replace(" .", ".")


def _new_pair(rng: Random, length: int, avoid: Collection[str]) -> tuple[str, str]:
    for _ in range(_TRIALS):
        parts = sentence(rng, length)
        source = _text(german(parts))
        if source not in avoid:
            return source, _text(english(parts))
    raise UserError(
        f"toy corpus: no further sentences of {length} words; ask for fewer pairs, or longer ones"
    )
