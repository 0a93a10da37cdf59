"""Merges are those of subword-nmt, in its order, with its oddities."""

import contextlib
import io
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from nmt.corpus.learn import count_pieces, learn_merges
from nmt.text.bpe import Bpe
from nmt.text.bpe_learner import learn
from nmt.text.tokenizer import Tokenizer


def subword_nmt_merges(lines: list[str], merges: int, least: int) -> list[str]:
    """Learn by subword-nmt itself."""
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe(lines, codes, merges, least, is_dict=True)
    return codes.getvalue().split("\n")[1:-1]


# few characters: a pair comes from two sides at once, overlaps itself, is made again
PARTS = st.sampled_from(["a", "b", "\\", "-", "</w>"])  # the last one also marks ends of words
WORDS = st.lists(PARTS, min_size=2, max_size=12).map("".join)


@given(st.dictionaries(WORDS, st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 3))
def test_as_subword_nmt_learns_of_few_characters(counts: dict[str, int], least: int) -> None:
    lines = [f"{word} {count}" for word, count in counts.items()]
    merges, _ = learn(counts, range(150), least)
    assert merges == subword_nmt_merges(lines, 150, least)


def test_as_subword_nmt_learns_of_many_words() -> None:
    draw = random.Random(3)
    parts = [
        "".join(draw.choices("enisratdhulcgmobwfkzpv", k=draw.randint(1, 4))) for _ in "x" * 80
    ]
    counts = Counter(
        "".join(draw.choices(parts, range(80, 0, -1), k=draw.randint(1, 4))) for _ in range(2500)
    )
    lines = [f"{word} {count}" for word, count in counts.items()]
    merges, _ = learn(counts, range(1200), 1)
    assert len(merges) > 1000  # so pairs were set aside and taken back many times
    assert merges == subword_nmt_merges(lines, 1200, 1)


@given(st.dictionaries(st.text("ab@", min_size=1, max_size=12), st.integers(1, 300), min_size=1))
def test_pieces_known_from_learning_are_those_of_segmenting(counts: dict[str, int]) -> None:
    merges, words = learn_merges(counts, 80, 1)
    segmenter = Bpe(Tokenizer("none", "none", ""), merges)
    assert words == {word: segmenter.segment(word) for word in words}
    assert count_pieces(counts, merges, words) == count_pieces(counts, merges)
