"""The page and the pictures of a report: safe whatever the data, complete, true to the numbers."""

import base64
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt import figure
from nmt.errors import UserError
from nmt.evaluation import page as pages
from nmt.evaluation.notation import spell_out
from nmt.evaluation.page import GAP, html, mark_differences
from nmt.evaluation.report import Report
from nmt.evaluation.text import render
from tests.evaluation.made_up import HOSTILE, compare, noisy, references

VOID = {"br", "hr", "img", "meta"}
EXPECTED = """
html head meta title style body header main section div p h1 h2 h3 code bdi small span sup mark b
table thead tbody tr th td details summary img dl dt dd ul li
"""
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
RIGHT = references(110)
WASH = "#f6efe2"  # behind what is longer than any text in training


class Tree(HTMLParser):
    """Elements in order with their attributes; fails where tags do not close as they opened."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attrs)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for n, attributes in self.elements if n == name]


@pytest.fixture(scope="module")
def study() -> Report:
    systems = {"good": [noisy(RIGHT, 0.2, 1), noisy(RIGHT, 0.2, 2)], "worse": [noisy(RIGHT, 0.5)]}
    return compare(systems, RIGHT, [20, 30])


@pytest.fixture(scope="module")
def page(study: Report) -> str:
    return html(study)


@pytest.fixture(scope="module")
def hostile() -> str:
    """The page of a report whose every text attacks."""
    text = " ".join(HOSTILE)
    lines = [f"{text} {n}" for n in range(12)]
    systems = {text: [lines], f"other {text}": [["", *lines[1:]]]}
    values: dict[str, Any] = {"name": text, "about": text, "unit": text, "sources": lines}
    report = compare(systems, lines, bounds=[50], metrics=["exact"], **values)
    texts = text, text, text, [text], {text: [text]}
    return html(Report(report.systems, report.tests, report.figures, 40, 1, *texts))


EMPTY = Report([], [], [], 100, 1, "Nothing")


def test_elements_close_and_nothing_foreign_is_among_them(page: str, hostile: str) -> None:
    for text in (page, hostile, html(EMPTY)):
        tree = Tree(text)
        assert {name for name, _ in tree.elements} <= set(EXPECTED.split())
        assert len(tree.all("style")) == 1 and not tree.all("script")
        for name, attributes in tree.elements:
            assert not [key for key in attributes if key.startswith("on")], name
            for key in ("src", "href", "action", "srcset", "data"):
                assert (attributes.get(key) or "data:").startswith("data:")
        (policy,) = [a["content"] or "" for a in tree.all("meta") if "http-equiv" in a]
        assert policy.startswith("default-src 'none';") and "script" not in policy
        assert "http" not in policy and "*" not in policy
        levels = [int(n[1]) for n, _ in tree.elements if re.fullmatch("h[1-6]", n)]
        assert levels[0] == 1 and levels.count(1) == 1


def test_hostile_text_is_shown_and_does_nothing(hostile: str) -> None:
    words = Tree(hostile).words
    assert sum(spell_out(" ".join(HOSTILE)) in word for word in words) > 20
    assert "⟨U+202E⟩override" in hostile and "␀nul" in hostile and "⟨U+D800⟩" in hostile
    assert "\u06cc\u200c\u062e" in hostile  # Persian keeps its joiner
    assert not INVISIBLE.search(hostile)
    hostile.encode("utf-8")


@given(TEXT)
def test_what_is_shown_can_be_seen_and_written(text: str) -> None:
    shown = spell_out(text)
    shown.encode("utf-8")
    assert spell_out(shown) == shown and len(shown) >= len(text)


def test_cells_hold_the_numbers_and_what_is_sure_is_shaded(study: Report, page: str) -> None:
    row = study.figure("BLEU", "worse", "all")
    assert row and row.significant and row.low is not None and row.high is not None
    table = page.split("BLEU <small>")[1].split("</table>")[0]
    headings = re.findall(r'<th scope="col"[^>]*>([^<]*)<small>', table)
    assert headings[:2] == ["beyond training", "all"]  # what a narrow screen shows
    cell = table.split("<bdi>worse</bdi>")[1].split("<td")[2]
    assert f"{row.mean:.1f}" in cell and f"[{row.low:.1f}, {row.high:.1f}]" in cell
    assert cell.startswith(' class="sure edge"') and "<sup>*</sup>" in cell
    good = study.figure("BLEU", "good", "all")
    assert good and good.deviation is not None
    assert f'class="best edge"><b>{good.mean:.1f} ± {good.deviation:.1f}</b>' in table
    stars = sum(figure.significant for figure in study.figures)
    assert (
        page.count("<sup>*")
        == stars
        > sum(f.significant and f.metric == "BLEU" for f in study.figures)
    )
    tables = [block for block in render(study).split("\n\n") if "n = " in block]
    assert sum(block.count("*") for block in tables) == stars  # the text has the same
    assert page.index('class="finding"') < page.index("<table")  # the conclusion comes first
    assert page.count('<details class="example"') == 30


def test_charts_are_pictures_within_the_page(study: Report, page: str) -> None:
    sources = [a["src"] or "" for a in Tree(page).all("img")]
    assert len(sources) == len(study.tests[0].metrics) > 3  # the first three are not folded
    assert page.index("Further plots") > [m.start() for m in re.finditer("<img", page)][2]
    assert all(a["alt"] for a in Tree(page).all("img"))
    svg = base64.b64decode(sources[0].partition("base64,")[2]).decode()
    assert svg.startswith("<?xml") and "longest in training: 20, good" in svg
    assert 5_000 < len(page) < 2_000_000


def test_without_matplotlib_the_page_has_its_tables(
    study: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = html(study)
    assert not Tree(page).all("img") and page.count("<table") > 4
    assert page.count("pip install &#39;nmt-toolkit[report]&#39;") == 1
    with pytest.raises(UserError) as caught:
        figure.require_matplotlib("-o x.png")
    assert caught.value.code == 69


def plain(markup: str) -> str:
    return "".join("".join(Tree(f"<p>{markup}</p>").words).split())


@given(TEXT, TEXT)
def test_marks_change_no_word(text: str, reference: str) -> None:
    marked = plain(mark_differences(text, reference)).replace(GAP, "")
    assert marked == "".join(spell_out(word) for word in text.split()).replace(GAP, "")


def test_differing_words_and_missing_ones_are_marked() -> None:
    marked = mark_differences("the small cat sat", "the cat sat on mats")
    assert re.findall("<mark>(.*?)</mark>", marked) == ["small"] and marked.count(GAP) == 1
    assert "<mark>" not in mark_differences("a b", "a b")
    assert re.findall("<mark>(.*?)</mark>", mark_differences("我很好", "我不好")) == ["很"]


def test_plots_are_repeatable(tmp_path: Path) -> None:
    small = compare({"a": [RIGHT[:20]]}, RIGHT[:20], bounds=[20], metrics=["exact"])
    (test,) = small.tests
    assert pages.draw_chart(small, test, test.metrics[0]) == pages.draw_chart(
        small, test, test.metrics[0]
    )
    for name in ("a.pdf", "b.pdf"):
        pages.draw(small, tmp_path / name)
    a, b = ((tmp_path / name).read_bytes() for name in ("a.pdf", "b.pdf"))
    assert a == b and len(a) > 5000


def test_plots_show_where_training_ends_and_any_label(tmp_path: Path) -> None:
    """matplotlib leaves the text of a label as a comment."""
    labels = ("_b", "c$_$5", "$")
    systems = {label: [RIGHT[:20]] for label in labels}

    def draw(**values: Any) -> str:
        pages.draw(compare(systems, RIGHT[:20], metrics=["exact"], **values), tmp_path / "a.svg")
        return (tmp_path / "a.svg").read_text()

    svg = draw(trained=[20, 30, None])
    assert "longest in training: 20, _b" in svg and "longest in training: 30, c$_$5" in svg
    assert all(f"<!-- {label} -->" in svg for label in labels) and WASH not in svg
    assert WASH in draw(trained=[20, 30, 20])
    assert "all pairs" in draw(lengths=None, unit=None)
