"""The embedded grammar: exact lengths, one right translation, correct German and English."""

import hashlib
import re
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacremoses import MosesTokenizer

from nmt.config.data import Data, columns_of
from nmt.corpus.learn import count_pieces, learn_merges
from nmt.errors import UserError
from nmt.text.bpe import Bpe
from nmt.text.lines import read_text
from nmt.text.tokenizer import Tokenizer
from nmt.toy import pairs, words
from nmt.toy.grammar import Clause, Phrase, german
from nmt.toy.lexicon import (
    COMPLEMENT,
    COORDINATORS,
    NOUNS,
    SUBORDINATORS,
    VERBS,
    adjective,
    article,
)
from nmt.toy.recipe import RECORD, write
from tests.composing import settings_of
from tests.toy.toy_parser import parse, translate


@cache
def long() -> list[tuple[str, str]]:
    """Pairs of all lengths, two of each."""
    return pairs(236, 3, 120, seed=7)


@cache
def short() -> list[tuple[str, str]]:
    """Pairs as long as those of the training text."""
    return pairs(2000, 4, 30, seed=1)


def corpus(**changes: Any) -> Data:
    """The corpus of conf/data/toy.yaml, smaller."""
    data = settings_of("data=toy").data
    assert isinstance(data, Data)
    return replace(data, **{"train_pairs": 600, "dev_pairs": 60, "test_pairs": 90} | changes)


def read_all(directory: Path) -> dict[str, bytes]:
    """The content of each file, by its name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_same_arguments_same_pairs() -> None:
    assert pairs(236, 3, 120, seed=7) == long()
    assert pairs(236, 3, 120, seed=8) != long()


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


@pytest.mark.slow
def test_joined_lines_are_the_pieces_of_their_parts() -> None:
    """A sentence is segmented in a longer line as it is alone, on both sides of the seam."""
    drawn = pairs(1000, 4, 30, seed="joined")
    twos = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
    tokenizers = [Tokenizer("nfc", "moses", language) for language in ("de", "en")]
    counts = [
        Counter(" ".join(map(tokenizer.words, side)).split(" "))
        for tokenizer, side in zip(tokenizers, zip(*short(), strict=True), strict=True)
    ]
    merges, _ = learn_merges(counts[0] + counts[1], 50000, 2)
    for side, tokenizer in enumerate(tokenizers):
        segmenter = Bpe(tokenizer, merges, count_pieces(counts[side], merges))
        for two in twos:
            parts = [pair[side] for pair in two]
            whole = segmenter.encode(" ".join(parts))
            assert whole == [p for one in parts for p in segmenter.encode(one)]


def test_german_determines_english() -> None:
    for source, target in long() + short():
        assert translate(source) == target


def test_known_sentences() -> None:
    known = {
        "Heute liest der alte Mann ein Buch.": "Today the old man reads a book.",
        "Er macht die Tür gern zu.": "He closes the door gladly.",
        "Er macht die Tür gern auf.": "He opens the door gladly.",
        "Sie liest.": None,
        "Sie lesen ein Buch.": "They read a book.",
        "Sie liest ein Buch.": "She reads a book.",
        "Weil er schläft, ist sie angekommen.": "Because he sleeps, she arrived.",
        "Der Mann, der den Apfel isst, lacht.": "The man who eats the apple laughs.",
        "Den Apfel isst der Mann.": None,
        "Der Mann lacht, weil sie heute im Garten das Buch gelesen haben.": None,
        "Der Mann lacht, weil sie das Buch heute im Garten gelesen haben.": (
            "The man laughs because they read the book in the garden today."
        ),
    }
    for source, target in known.items():
        if target:
            assert translate(source) == target
        else:
            with pytest.raises(ValueError, match="no sentence of the grammar"):
                translate(source)


@pytest.mark.parametrize(
    "text", ["", ".", "Der", "Der Mann schläft", "Das Mann schläft.", "der Mann schläft.", "A b."]
)
def test_others_are_no_sentences(text: str) -> None:
    with pytest.raises(ValueError, match="no sentence of the grammar"):
        translate(text)


def test_a_changed_word_is_noticed() -> None:
    """Agreement is checked: no single article or verb can be exchanged for another form."""
    for source, wrong in [
        ("Die Kinder schlafen.", "Die Kinder schläft."),
        ("Er hilft dem Kind.", "Er hilft das Kind."),
        ("Er ist angekommen.", "Er hat angekommen."),
        ("Ein alter Mann lacht.", "Ein alte Mann lacht."),
        ("Heute lacht er.", "Heute er lacht."),
        ("Wir lachen, weil er lacht.", "Wir lachen, weil lacht er."),
    ]:
        translate(source)
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


def test_english_agreement() -> None:
    singular = {verb.english_third.split()[0] for verb in VERBS}
    plural = {v.english.split()[0] for v in VERBS if v.english != v.english_past}
    nouns = {noun.english: False for noun in NOUNS} | {noun.english_plural: True for noun in NOUNS}
    checked: Counter[bool] = Counter()
    for _, target in short():
        tokens = words(target[0].lower() + target[1:])
        first = next((i for i, w in enumerate(tokens) if w in nouns), 0)
        if first and first < 3 and tokens[first + 1] in singular | plural:  # the old man sleeps
            assert (tokens[first + 1] in plural) == nouns[tokens[first]], target
            checked[nouns[tokens[first]]] += 1
        for word, after in pairwise(tokens):
            if word in ("a", "an"):
                assert (word == "an") == (after[0] in "aeiou")
            assert not (word in ("a", "an", "this") and nouns.get(after, False))
            assert not (word in ("these", "many", "two") and not nouns.get(after, True))
            assert not (word in ("he", "she") and after in plural)
            assert not (word in ("we", "they") and after in singular)
    assert min(checked[False], checked[True]) > 100


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
    assert not [name for name in wanted if seen[name] < 50], seen


def test_order_matters() -> None:
    """The best translation word for word, in the German order, is no translation."""
    together: dict[str, Counter[str]] = {}
    often = Counter(w for _, target in short() for w in set(words(target)))
    for source, target in short():
        for word in set(words(source)):
            together.setdefault(word, Counter()).update(set(words(target)))
    best = {
        word: max(found, key=lambda w: (found[w] ** 2 / often[w], w))
        for word, found in together.items()
    }
    literal = [" ".join(best.get(w, w) for w in words(source)) for source, _ in short()[:1000]]
    gold = [" ".join(words(target)) for _, target in short()[:1000]]
    assert best["Mann"] == "man"
    assert sacrebleu.corpus_bleu(literal, [gold], tokenize="none", force=True).score < 60


@pytest.mark.slow
def test_the_training_text_covers_the_words(tmp_path: Path) -> None:
    data = corpus(train_pairs=3000, test_pairs=300)
    write(data, tmp_path)
    text = {name: content.decode() for name, content in read_all(tmp_path).items()}
    lines = {name: t.removesuffix("\n").split("\n") for name, t in text.items()}
    endings = ("de", "en", *columns_of(data).keys() - {"words"})
    of_parts = {f"{part}.{e}" for part in ("train", "dev", "test") for e in endings}
    assert set(lines) == of_parts | {"concat_seq.de", "concat_seq.en", RECORD}
    assert [len(lines[f"{p}.de"]) for p in ("train", "dev", "test")] == [3000, 60, 300]
    for source, target in zip(lines["test.de"], lines["test.en"], strict=True):
        assert translate(source) == target
    for side in ("de", "en"):
        known = {w for line in lines[f"train.{side}"] for w in words(line)}
        assert {w for line in lines[f"test.{side}"] for w in words(line)} <= known
    assert not re.search(r"[\r\t]|  | $", text["train.de"], re.MULTILINE)


def test_parts_are_disjoint(tmp_path: Path) -> None:
    short = {"train_shortest": 4, "train_longest": 5, "test_shortest": 4, "test_longest": 5}
    write(corpus(train_pairs=600, dev_pairs=200, test_pairs=200, **short), tmp_path)
    parts = [set(read_text(tmp_path / f"{p}.de")) for p in ("train", "dev", "test")]
    assert all(not one & other for one, other in combinations(parts, 2))
    drawn = [pairs(n, 4, 5, f"{p} 1") for p, n in (("train", 600), ("dev", 200), ("test", 200))]
    alone = [{source for source, _ in each} for each in drawn]
    assert all(one & other for one, other in combinations(alone, 2))  # so it was looked after


def test_writes_the_same_bytes_again(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write(corpus(), tmp_path / name)
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


def test_too_many_short_sentences_are_refused() -> None:
    class Everything(frozenset[str]):
        def __contains__(self, source: object) -> bool:
            return True

    with pytest.raises(UserError, match="no further sentences of 3 words; ask for fewer"):
        pairs(1, 3, 3, seed=2, avoid=Everything())


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("en", "en"), ("x", "x")])
def test_other_languages_are_refused(source: str, target: str, tmp_path: Path) -> None:
    other = corpus(source_language=source, target_language=target)
    with pytest.raises(UserError, match="the embedded grammar translates German to English"):
        write(other, tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("lengths", [(2, 9), (9, 8)])
def test_impossible_lengths_are_refused(lengths: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="choose lengths from 3 up"):
        pairs(1, *lengths, seed=1)


def test_drawing_is_fast() -> None:
    start = time.process_time()
    pairs(1000, 4, 30, seed=3)
    assert (
        time.process_time() - start < 3
    )  # 20000 within a minute on a busy machine; usually in 3 s
