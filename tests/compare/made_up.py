"""A made-up test set: references, and translations that are wrong to a chosen degree."""

import random

from nmt.compare import scoring
from nmt.compare.report import ScoredTest
from nmt.compare.scoring import Bootstrap, TranslatedTest

WORDS = [f"w{i}" for i in range(60)] + ["the", "of", "it's", "Mr."] * 5


def references(pairs: int, seed: int = 0, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) + "." for _ in range(pairs)]


def noisy(lines: list[str], wrong: float, seed: int = 1) -> list[str]:
    """Each word is wrong with this probability, now and then dropped."""
    rng = random.Random(seed)

    def word(old: str) -> str:
        chance = rng.random()
        return "" if chance < wrong / 4 else rng.choice(WORDS) if chance < wrong else old

    return [" ".join(filter(None, map(word, line.split(" ")))) for line in lines]


def lengths(lines: list[str]) -> list[int]:
    return [len(line.split(" ")) for line in lines]


def score(test: TranslatedTest, how: Bootstrap) -> ScoredTest:
    """The scores alone, as `diagnose` makes them."""
    used = scoring.scorers_of(test, how)
    counts = scoring.count(test, how, [scorer.name for scorer in used])
    return scoring.score_counts(test, how, used, counts)
