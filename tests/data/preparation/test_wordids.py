"""Ids by words are those by pieces, whatever is known from the file."""

from collections import Counter
from pathlib import Path

import pytest

from nmt.data.bpe import Bpe
from nmt.data.preparation import wordids
from nmt.data.preparation.learn import count_pieces, learn_merges
from nmt.data.preparation.wordids import WordIds
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocab import Vocabulary

COUNTS = Counter({"lower": 9, "lowest": 5, "new": 7, "newest": 6, "wider": 3, "é": 2})
LINES = ["lower new", "", "newer lowest x new new", "é", "zz wide widest", "lower"]


@pytest.mark.parametrize("remembered", [2**18, 2, 0])
@pytest.mark.parametrize("more", [2**20, 0])
def test_lines_have_the_ids_of_their_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int, more: int
) -> None:
    monkeypatch.setattr(wordids, "FREQUENT", remembered)
    monkeypatch.setattr(wordids, "CACHED", more)  # 0: words from the lines before are forgotten
    merges, pieces = learn_merges(COUNTS, 10, 1)
    segmenter = Bpe(Tokenizer("none", "none", ""), merges)
    vocabulary = Vocabulary(sorted(count_pieces(COUNTS, merges)))
    made: list[str] = []

    def make(word: str) -> list[int]:
        made.append(word)
        return vocabulary.ids(segmenter.segment(word))[:-1]

    wordids.write(tmp_path / "known", COUNTS, pieces, vocabulary)
    known = WordIds(tmp_path / "known", make)
    wanted = [vocabulary.ids(segmenter.segment(line)) for line in LINES]
    for _ in range(2):
        ids, lengths = known.lines("".join(f"{line}\n" for line in LINES))
        assert ids.tolist() == [number for line in wanted for number in line]
        assert lengths.tolist() == list(map(len, wanted))
    assert {"newer", "x", "zz"} <= set(made)
    assert ("lower" in made) == (remembered == 0)
    assert (made.count("x") == 2) == (more == 0)
