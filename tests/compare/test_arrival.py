"""What arrived is counted as said, and chance plays a small part in it."""

import random

import numpy as np
import pytest

from nmt.compare.arrival import arrived, distinctive_ngrams, lost, ngrams, pooled_shares
from nmt.compare.report import Share


def test_n_grams_by_hand() -> None:
    assert ngrams("ab cd efg") == {"abcdef": 1, "bcdefg": 1}
    assert ngrams("aaa", (1, 2)) == {"a": 3, "aa": 2}
    assert distinctive_ngrams(["abcab", "cad"], (2,)) == [{"ab": 2, "bc": 1}, {"ad": 1}]
    expected = ngrams("abab", (2,))
    assert arrived(expected, ngrams("ababab", (2,))) == 3  # ab at most twice
    assert lost(expected, ngrams("ab", (2,))) == 2 and lost(expected, ngrams("ababab", (2,))) == 0


def test_unrelated_text_hardly_arrives_however_long_it_is() -> None:
    """Words of few letters in the order of chance, as a model writes that has lost its place."""
    draw = random.Random(1)

    def text(words: int) -> str:
        return " ".join("".join(draw.choices("enisratdhulc", k=5)) for _ in range(words))

    shares = {}
    for orders in ((6,), range(1, 7)):
        for words in (10, 100):
            expected = [ngrams(text(words), orders) for _ in range(30)]
            outputs = [ngrams(text(words), orders) for _ in range(30)]
            total = sum(grams.total() for grams in expected)
            shares[len(orders), words] = sum(map(arrived, expected, outputs)) / total
    assert shares[1, 10] < shares[1, 100] < 0.001
    assert shares[6, 100] > shares[6, 10] + 0.1  # what orders 1 to 6 would make of it


def test_a_share_is_pooled_and_its_interval_is_of_draws_that_have_any() -> None:
    draws = 200, 1
    (share,) = pooled_shares([[np.array([[1.0, 4.0], [0.0, 0.0], [2.0, 2.0]])]], *draws)
    assert share and share.mean == 0.5 and share.low == pytest.approx(0.25) and share.high == 1
    few = np.array([[3.0, 4.0], [0.0, 0.0]])
    nothing = np.zeros((3, 2)), np.zeros((0, 2))
    shares = pooled_shares([[few], [nothing[0]], [nothing[1]], []], *draws)
    assert shares == [Share(0.75, 0.75, 0.75), None, None, None]
