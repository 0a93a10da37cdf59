"""The embedded grammar: exact lengths, one right translation, correct German and English."""

import hashlib
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from sacremoses import MosesTokenizer

from nmt.config.data import Data
from nmt.errors import UserError
from nmt.text.lines import read_text
from nmt.toy import pairs, words, write_text
from nmt.toy.grammar import Clause, Phrase, german
from nmt.toy.lexicon import COMPLEMENT, COORDINATORS, SUBORDINATORS, VERBS, adjective, article
from tests.composing import settings_of
from tests.toy.toy_parser import parse, translate


@cache
def long() -> list[tuple[str, str]]:
    """Pairs of all lengths."""
    return pairs(118, 3, 120, seed=7)


@cache
def short() -> list[tuple[str, str]]:
    """Pairs as long as those of the training text."""
    return pairs(800, 4, 30, seed=1)


def corpus(**changes: Any) -> Data:
    """The corpus of conf/data/toy.yaml, smaller."""
    data = settings_of("data=toy").data
    assert isinstance(data, Data)
    return replace(data, **{"train_pairs": 600, "dev_pairs": 60, "test_pairs": 90} | changes)


def test_draws_are_pinned() -> None:
    """The same on every machine and Python: whoever names the seed names the corpus."""
    assert pairs(3, 6, 10, seed=1) == [
        ("Dieses Kind hat die Fenster aufgemacht.", "This child opened the windows."),
        ("Dieser Arzt, der Briefe mitbringt, läuft.", "This doctor who brings letters runs."),
        ("Wir machen den Koffer zu.", "We close the suitcase."),
    ]
    digest = hashlib.sha256(repr(pairs(300, 3, 120, seed=1)).encode()).hexdigest()
    assert digest.startswith("90a5180ac531f539")


def test_lengths_are_spread_evenly() -> None:
    counts = Counter(len(words(source)) for source, _ in long())
    assert set(counts) == set(range(3, 121))
    assert max(counts.values()) - min(counts.values()) <= 1
    few = sorted(len(words(source)) for source, _ in pairs(4, 10, 49, seed=1))
    assert few == [10, 20, 30, 40]


def test_words_are_those_of_moses() -> None:
    for language, side in (("de", 0), ("en", 1)):
        tokenizer = MosesTokenizer(lang=language)
        for pair in long()[:100]:
            assert tokenizer.tokenize(pair[side], escape=True) == words(pair[side])


def test_german_determines_english() -> None:
    for source, target in long() + short():
        assert translate(source) == target


def test_known_sentences() -> None:
    known = {
        "Heute liest der alte Mann ein Buch.": "Today the old man reads a book.",
        "Er macht die Tür gern zu.": "He closes the door gladly.",
        "Sie lesen ein Buch.": "They read a book.",
        "Sie liest ein Buch.": "She reads a book.",
        "Weil er schläft, ist sie angekommen.": "Because he sleeps, she arrived.",
        "Der Mann, der den Apfel isst, lacht.": "The man who eats the apple laughs.",
        "Der Mann lacht, weil sie das Buch heute im Garten gelesen haben.": (
            "The man laughs because they read the book in the garden today."
        ),
    }
    assert {source: translate(source) for source in known} == known
    for wrong in (
        "Sie liest.",
        "Den Apfel isst der Mann.",
        "Er hilft das Kind.",
        "Heute er lacht.",
    ):
        with pytest.raises(ValueError, match="no sentence of the grammar"):
            translate(wrong)


def test_declension() -> None:
    table = {  # determiner, gender -> nominative, accusative, dative; with an adjective
        ("der", "m"): "der gute, den guten, dem guten",
        ("der", "f"): "die gute, die gute, der guten",
        ("der", "n"): "das gute, das gute, dem guten",
        ("der", "p"): "die guten, die guten, den guten",
        ("ein", "m"): "ein guter, einen guten, einem guten",
        ("ein", "f"): "eine gute, eine gute, einer guten",
        ("ein", "n"): "ein gutes, ein gutes, einem guten",
        ("dieser", "n"): "dieses gute, dieses gute, diesem guten",
        ("dieser", "p"): "diese guten, diese guten, diesen guten",
        ("viele", "p"): "viele gute, viele gute, vielen guten",
        ("zwei", "p"): "zwei gute, zwei gute, zwei guten",
    }
    for (name, gender), forms in table.items():
        made = [f"{article(name, gender, c)} {adjective('gut', name, gender, c)}" for c in range(3)]
        assert ", ".join(made) == forms


def clauses(phrase_or_clause: Clause | Phrase | None) -> list[Clause]:
    """A clause, and all relative clauses in it."""
    if isinstance(phrase_or_clause, Clause):
        c = phrase_or_clause
        found = [c]
        for part in (c.subject, c.accusative, c.dative):
            found += clauses(part) if isinstance(part, Phrase) else []
        return found
    if phrase_or_clause is None or phrase_or_clause.relative is None:
        return []
    return clauses(phrase_or_clause.relative)


def test_every_construction_occurs() -> None:
    seen: Counter[str] = Counter()
    for source, _ in short():
        parts = parse(words(source))
        assert german(parts) == words(source)
        for part in parts:
            seen[part.order] += 1
            for link in part.links:
                seen[link] += 1
            for clause in clauses(part.clause):
                seen["relative"] += clause is not part.clause
                seen[f"auxiliary {clause.auxiliary}"] += 1
                seen[f"particle {clause.verb.particle}"] += 1
                seen[f"verb {clause.verb.english}"] += 1
                seen[f"front {clause.front}"] += 1
                for role in clause.adverbials:
                    seen[role] += 1
    wanted = ["second", "first", "final", "relative", COMPLEMENT, *COORDINATORS, *SUBORDINATORS]
    wanted += ["front time", "front place", "time", "often", "manner", "place"]
    wanted += [f"auxiliary {a}" for a in ("", "hat", "ist", "kann", "muss", "will", "wird")]
    wanted += [f"verb {v.english}" for v in VERBS] + ["particle auf", "particle zu", "particle mit"]
    assert not [name for name in wanted if seen[name] < 12], seen


def test_parts_are_disjoint(tmp_path: Path) -> None:
    short = {"train_shortest": 4, "train_longest": 5, "test_shortest": 4, "test_longest": 5}
    write_text(corpus(train_pairs=600, dev_pairs=200, test_pairs=200, **short), tmp_path)
    parts = [set(read_text(tmp_path / f"{p}.de")) for p in ("train", "dev", "test")]
    assert all(not one & other for one, other in combinations(parts, 2))
    drawn = [pairs(n, 4, 5, f"{p} 1") for p, n in (("train", 600), ("dev", 200), ("test", 200))]
    alone = [{source for source, _ in each} for each in drawn]
    assert all(one & other for one, other in combinations(alone, 2))  # so it was looked after


def test_too_many_short_sentences_are_refused() -> None:
    class Everything(frozenset[str]):
        def __contains__(self, source: object) -> bool:
            return True

    with pytest.raises(UserError, match="no further sentences of 3 words; ask for fewer"):
        pairs(1, 3, 3, seed=2, avoid=Everything())


def test_other_languages_are_refused(tmp_path: Path) -> None:
    other = corpus(source_language="en", target_language="de")
    with pytest.raises(UserError, match="the embedded grammar translates German to English"):
        write_text(other, tmp_path)
    assert not [*tmp_path.iterdir()]
