"""The seam on one page: its hooks and attributes, and that pages name the same ones."""

import re

from nmt.encodings.base import HOOKS, Encoding
from nmt.encodings.input.learned import Learned
from nmt.encodings.positions_columns import ColumnPositions
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import dims
from tests.pages import text_of


def test_pages_name_all_hooks() -> None:
    seam = text_of("docs/architecture.md").split("eight hooks")[1]
    assert tuple(re.findall(r"^\| `(\w+)` \|", seam, re.M)[: len(HOOKS)]) == HOOKS
    listed = text_of("docs/adding-an-encoding.md").split("hooks: ")[1].split(".")[0]
    assert tuple(re.findall(r"`(\w+)`", listed)) == HOOKS


def test_attributes_of_the_page_exist() -> None:
    table = (
        text_of("docs/adding-an-encoding.md").split("| attribute | meaning |")[1].split("\n\n")[0]
    )
    cells = " ".join(re.findall(r"^\| (`.*?`) \|", table, re.M))
    named = set(re.findall(r"`(\w+)`", cells))
    assert named and named <= vars(Encoding).keys()


def test_what_positions_need_is_added_to_what_the_encoding_reads() -> None:
    e = Learned(dims(positions=ColumnPositions("order")), size=9)
    assert e.columns == {"order"} and e.integers_of_columns == {"order": range(9)}
    assert not Learned(dims()).columns and Learned(dims()).integers_of_columns == {}
    assert Relative(dims(), tau=None, longest=5).longest_distance == 4
    assert Relative.longest_distance is None  # that of the object is its own
