"""The seam on one page: which hooks and facts there are, and that pages name the same ones."""

import re
from dataclasses import fields
from typing import Any

from torch import nn

from nmt.encodings.base import HOOKS, Encoding, Facts
from nmt.encodings.positions_columns import ColumnPositions
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import dims
from tests.pages import text_of


def test_the_seam_stays_on_one_page() -> None:
    """Whoever adds a member says here why an author of encodings must know of it."""
    instance = {"dims", "positions", "facts", "name"}
    others = {"hooks", "by_distance", "zero_initialise", "table", "pick"}
    added = vars(Encoding(dims())).keys() - vars(nn.Module()).keys()
    defined = {name for name in vars(Encoding) if not name.startswith("__")}
    assert added == instance
    assert defined == {"facts", *others, *HOOKS}
    assert text_of("nmt/encodings/base.py").count("\n") <= 150


def test_pages_name_all_hooks() -> None:
    seam = text_of("docs/architecture.md").split("eight hooks")[1]
    assert tuple(re.findall(r"^\| `(\w+)` \|", seam, re.M)[: len(HOOKS)]) == HOOKS
    listed = text_of("docs/adding-an-encoding.md").split("hooks: ")[1].split(".")[0]
    assert tuple(re.findall(r"`(\w+)`", listed)) == HOOKS


def test_facts_of_the_page_exist() -> None:
    table = text_of("docs/adding-an-encoding.md").split("| fact | meaning |")[1].split("\n\n")[0]
    cells = " ".join(re.findall(r"^\| (`.*?`) \|", table, re.M))
    named = set(re.findall(r"`(\w+)`", cells))
    assert named and named <= {f.name for f in fields(Facts)}


def test_facts_include_what_positions_need() -> None:
    order = ColumnPositions("order")
    facts = Facts(num_positions=9, columns=frozenset({"heads"})).including(order)
    assert facts.columns == {"heads", "order"} and facts.column_ranges == {"order": range(9)}
    assert Relative(dims(), tau=None, longest=5).facts.max_distance == 4
    assert Relative.facts.max_distance is None  # that of the object is its own


def test_a_class_knows_its_hooks() -> None:
    class Child(Relative):
        def bias(self, layer: int, context: Any) -> None:
            return None

    assert Relative.hooks == ("scores", "outputs") and Encoding.hooks == ()
    assert Child.hooks == ("scores", "bias", "outputs")
