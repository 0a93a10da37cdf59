"""The seam on one page: its hooks and attributes, and that pages name the same ones."""

import re
from typing import Any

from torch import nn

from nmt.encodings.base import HOOKS, Encoding
from nmt.encodings.input.learned import Learned
from nmt.encodings.limits import column_ranges
from nmt.encodings.positions_columns import ColumnPositions
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import dims
from tests.pages import text_of


def test_the_seam_stays_on_one_page() -> None:
    """Whoever adds a member says here why an author of encodings must know of it."""
    others = {"hooks", "by_distance", "zero_initialise", "table", "pick"}
    added = vars(Encoding(dims())).keys() - vars(nn.Module()).keys()
    defined = {name for name in vars(Encoding) if not name.startswith("__")}
    assert added - defined == {"dims", "positions", "name"}
    assert len(defined) - len({*others, *HOOKS}) == 18  # attributes; not one more, for any encoding
    assert text_of("nmt/encodings/base.py").count("\n") <= 210


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
    assert e.columns == {"order"} and column_ranges(e) == {"order": range(9)}
    assert not Learned(dims()).columns and column_ranges(Learned(dims())) == {}
    assert Relative(dims(), tau=None, longest=5).longest_distance == 4
    assert Relative.longest_distance is None  # that of the object is its own


def test_a_class_knows_its_hooks() -> None:
    class Child(Relative):
        def bias(self, layer: int, context: Any) -> None:
            return None

    assert Relative.hooks == ("scores", "outputs") and Encoding.hooks == ()
    assert Child.hooks == ("scores", "bias", "outputs")
