"""Text of others cannot do anything to a terminal or a log."""

import re
from pathlib import Path

from nmt.errors import Exit, visible


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


def test_every_exit_code_is_in_the_table_of_the_docs() -> None:
    page = Path("docs/commands.md").read_text(encoding="utf-8").partition("### Exit codes")[2]
    rows = re.findall(r"^\| ([\d, ]+) \|", page.partition("\n## ")[0], re.M)
    codes = sorted(int(code) for row in rows for code in row.split(","))
    assert codes == sorted([1, *Exit])  # 1: a bug in nmt
