"""Text of others cannot do anything to a terminal or a log."""

from nmt.errors import visible


def test_control_characters_are_seen_and_do_nothing() -> None:
    assert visible("größe \x1b[2J\r\nERROR\x9b\u2028\u202e") == (
        r"größe \x1b[2J\x0d\x0aERROR\x9b\u2028\u202e"
    )
    assert visible(b"\xff".decode(errors="surrogateescape")) == r"\xff"
    assert visible("\ud800") == r"\ud800"
    assert visible(3) == "3"


def test_a_long_text_is_cut() -> None:
    assert visible("a" * 300, limit=5) == "aaaaa..."
    assert visible("aaaaa", limit=5) == "aaaaa"
