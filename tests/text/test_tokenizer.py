# ruff: noqa: RUF001 (it is about these characters)
"""Curly quotes and apostrophes come back where they stood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer

from nmt.text.tokenizer import CLOSERS, Tokenizer, join_marked, mark_quotes

TOKENIZERS = {language: Tokenizer("nfc", "moses", language) for language in ("en", "de", "fr")}
PARTS = [*CLOSERS, "’", '"', "'", "s", "Haus", "5", ".", ",", "(", ")", "-", "-los", "90s", "中"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "It’s what we don’t know."),
        ("en", "“See what I did!” she said. “Wait a minute.”"),
        ("en", "He said ‘no’, and “yes” (“if you’d like”)."),
        ("en", "“He said ‘it’s no.’”"),  # nested
        ("en", "The dogs’ tails, O’Neill’s cats and all ’em of the ’90s"),
        ("en", "It is 8’ x 10’, or 5’3”."),
        ("en", "“This goes on in the next line. “And this"),
        ("en", "as it did in the line before.” He left."),
        ("en", "It «was» ‹so›."),
        ("de", "„Ja“, sagte er, „das geht’s an, ‚nein‘ nicht.“"),
        ("de", 'Die „Nachrichtensprecher“-Stimme: „stolz", so'),
        ("de", "Das »Wort« (die »Zombie«-Prozesse), ›so‹"),
        ("de", "Das ging dort weiter“, sagte sie. „Und hier"),
        ("fr", "« Oui », dit-il. L’eau d’ici, aujourd’hui"),
    ],
)
def test_text_comes_back(language: str, text: str) -> None:
    tokenizer = TOKENIZERS[language]
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


@given(st.lists(st.sampled_from(PARTS)), st.sampled_from([*TOKENIZERS]))
def test_only_spaces_change(words: list[str], language: str) -> None:
    marked = mark_quotes(words, language)
    assert join_marked(" ".join(marked)).replace(" ", "") == "".join(words)
    joined = TOKENIZERS[language].detokenize(" ".join(words))
    assert joined == " ".join(joined.split()) and joined.replace(" ", "") == "".join(words)


@given(st.lists(st.sampled_from(PARTS[len(CLOSERS) + 1 :])), st.sampled_from([*TOKENIZERS]))
def test_text_of_straight_quotes_is_what_moses_makes_of_it(words: list[str], language: str) -> None:
    expected = MosesDetokenizer(lang=language).detokenize(words, unescape=False)
    assert TOKENIZERS[language].detokenize(" ".join(words)) == expected
