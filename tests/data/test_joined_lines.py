"""Joined lines and their sentences: which Moses reads otherwise, and how to read them alike."""

from hypothesis import given
from hypothesis import strategies as st

from nmt.data.bpe import Bpe
from nmt.data.columns import ColumnLine, expand
from nmt.data.joined import differs_from_sentences
from nmt.data.segmenter import JoinedLine, pieces_of
from nmt.data.tokenizer import Tokenizer

WORDS = st.sampled_from(["und", "Haus.", "klein.", "Dr.", "3", "3.", "'", "a'", ",", "Ö", "é.", ""])
SENTENCES = st.lists(st.lists(WORDS, max_size=4).map(" ".join), min_size=1, max_size=4)
SMALL = ["Er hat zwei Kinder.", "die Frau schläft."]
CAPITAL = ["Er hat zwei Kinder.", "Die Frau schläft."]


MOSES = Tokenizer("nfc", "moses", "de")
BPE = Bpe(MOSES, ["H a", "Ha u", "r .</w>"])


@given(SENTENCES)
def test_a_joined_line_is_the_pieces_of_its_sentences(sentences: list[str]) -> None:
    line = JoinedLine(" ".join(sentences), sentences)
    assert line == " ".join(sentences)
    assert pieces_of(BPE, line) == [p for one in sentences for p in BPE.encode(one)]
    assert pieces_of(BPE, str(line)) == BPE.encode(" ".join(sentences))


def test_the_stop_at_a_seam_leaves_its_word() -> None:
    line = JoinedLine(" ".join(SMALL), SMALL)
    apart, whole = pieces_of(BPE, line), pieces_of(BPE, str(line))
    assert "r." in whole and "r." not in apart


@given(st.lists(SENTENCES, max_size=5))
def test_lines_that_are_read_otherwise(parts: list[list[str]]) -> None:
    lines = [" ".join(sentences) for sentences in parts]
    expected = [
        MOSES.words(line).split() != [w for s in parts[i] for w in MOSES.words(s).split()]
        for i, line in enumerate(lines)
    ]
    assert differs_from_sentences(parts, "de") == expected
    assert differs_from_sentences([SMALL, CAPITAL], "de") == [True, False]


def test_columns_follow_the_pieces_that_are_read() -> None:
    tags = ColumnLine("word", "1 2 3 4 5 6 7", "here")
    line = JoinedLine(" ".join(SMALL), SMALL)
    lengths = {len(pieces_of(BPE, text)) for text in (line, str(line))}
    assert len(lengths) == 2
    assert lengths == {
        len(expand(text, {"tag": tags}, BPE, "here")["tag"]) - 1 for text in (line, str(line))
    }
