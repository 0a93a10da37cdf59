"""The page of a report: safe whatever the data, complete, and true to the numbers."""

import base64
import hashlib
import html as escapes
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.compare.page import environment, examples, html, lengths, panels, svg
from nmt.compare.page.charts import Bands, Curve, Limit, Point, Series, by_length, curve_chart
from nmt.compare.page.text import bdi, listed, shown
from nmt.compare.report import REACH, AttentionProfile, BucketScores, Report, Share
from tests.compare import made_up_report
from tests.compare.made_up_report import HOSTILE, bare, empty

VOID = {"br", "hr", "input", "link", "meta"}
EXPECTED = """
html head meta link title style script body a header nav ul li main section div p h1 h2 h3 h4 time
button code bdi strong small span sup mark br table thead tbody tr th td details summary figure
figcaption svg path text desc label input select option output dl dt dd
"""


class Tree(HTMLParser):
    """Elements in order with their attributes; fails where tags do not close as they opened."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []  # innermost element, text
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute of {name} twice"
        self.elements.append((name, dict(attrs)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for n, attributes in self.elements if n == name]


Making: TypeAlias = Callable[[], Report]


@cache
def study() -> Report:
    return made_up_report.whole()


@cache
def page_of(made: Making) -> str:
    return html(made())


@cache
def tree_of(made: Making) -> Tree:
    return Tree(page_of(made))


@pytest.fixture
def whole() -> str:
    return page_of(study)


PAGES: list[Making] = [study, bare, empty]


@pytest.mark.parametrize("made", PAGES)
def test_elements_close_and_nothing_foreign_is_among_them(made: Making) -> None:
    tree = tree_of(made)
    assert {name for name, _ in tree.elements} <= set(EXPECTED.split())
    assert len(tree.all("script")) == 1 and len(tree.all("style")) == 1
    for name, attributes in tree.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "style"], name
        for key in ("src", "href", "action", "srcset", "data"):
            address = attributes.get(key) or "#"
            assert address.startswith("#") or address == "data:,"


@pytest.mark.parametrize("made", PAGES)
def test_ids_are_unique_and_lead_somewhere(made: Making) -> None:
    tree = tree_of(made)
    ids = [a["id"] for _, a in tree.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, a in tree.elements:
        for key in ("aria-labelledby", "for"):
            assert a.get(key) is None or a[key] in ids
        if (a.get("href") or "").startswith("#"):
            assert (a["href"] or "")[1:] in ids


@pytest.mark.parametrize("made", PAGES)
def test_headings_go_down_one_by_one(made: Making) -> None:
    levels = [int(n[1]) for n, _ in tree_of(made).elements if re.fullmatch("h[1-6]", n)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_pictures_and_tables_have_names(whole: str) -> None:
    tree = tree_of(study)
    for a in tree.all("svg"):
        assert a.get("role") == "img" or a.get("aria-hidden") == "true"
    named = [a for a in tree.all("svg") if a.get("role") == "img"]
    titles = re.findall(r"<svg [^>]*role=\"img\"[^>]*><title>([^<]+)</title><desc>", whole)
    assert len(named) == len(titles) > 50
    assert all(a.get("aria-label") for a in tree.all("table"))
    assert all(a.get("tabindex") == "0" for a in tree.all("div") if a.get("class") == "box")


@pytest.mark.parametrize("made", PAGES)
def test_the_policy_allows_what_is_there_and_no_more(made: Making) -> None:
    page = page_of(made)
    policy = next(
        a["content"] or "" for a in tree_of(made).all("meta") if a.get("http-equiv") is not None
    )
    inline = re.findall(r"<(script|style)>(.*?)</\1>", page, re.DOTALL)
    for _, text in inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == len(inline) == 2
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert "http:" not in policy and "https:" not in policy and "*" not in policy


def test_hostile_text_is_shown_and_does_nothing(whole: str) -> None:
    words = [data for _, data in tree_of(study).words]
    for text in HOSTILE:
        assert any(shown(text) == word for word in words), text
    assert "⟨U+202E⟩override" in whole and "␀nul" in whole and "␛[31m" in whole
    assert "⟨U+D800⟩" in whole and "⟨U+2028⟩" in whole
    assert "\u06cc\u200c\u062e" in whole  # Persian keeps its joiner
    whole.encode("utf-8")
    assert not INVISIBLE.search(whole)


INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)


PARAGRAPH = environment().from_string('<p title="{{ text }}">{{ text }}</p>')


@given(TEXT)
def test_any_text_comes_back_as_it_is_shown(text: str) -> None:
    for page in (PARAGRAPH.render(text=text), bdi(text)):
        tree = Tree(page)
        assert "".join(data for _, data in tree.words) == shown(text)
    assert Tree(PARAGRAPH.render(text=text)).elements == [("p", {"title": shown(text)})]


def hostile(plain: Any, text: str) -> Any:
    """Plain values of a report with this text wherever the data may have any."""
    if isinstance(plain, dict):
        closed = ("site", "why", "metrics", "scores", "test", "tables")
        kept = {key: value for key, value in plain.items() if key in closed}
        return {key: hostile(value, text) for key, value in plain.items()} | kept
    if isinstance(plain, list):
        return [hostile(value, text) for value in plain]
    return text if isinstance(plain, str) and plain != "all" else plain


def test_text_is_escaped_wherever_the_report_has_it() -> None:
    text = " ".join(HOSTILE)
    plain = study().to_json()
    made = Report.from_json(hostile({**plain, "tables": [], "profiles": []}, text))
    tests = [replace(test, name=f"{n} {text}") for n, test in enumerate(made.tests)]
    profiles = [replace(p, test=text, bucket=text) for p in study().profiles[:36]]
    table = replace(study().tables[1], name=text, caption=text, test=tests[0].name)
    renamed = replace(made, tests=tests, tables=[table], profiles=profiles)
    page = html(renamed)
    tree = Tree(page)
    assert {name for name, _ in tree.elements} <= set(EXPECTED.split())
    assert len(tree.all("script")) == 1 and len(tree.all("style")) == 1
    assert sum(shown(text) in word for _, word in tree.words) > 100
    assert not INVISIBLE.search(page)
    page.encode("utf-8")


@given(TEXT)
def test_what_is_shown_can_be_seen_and_written(text: str) -> None:
    assert shown(shown(text)) == shown(text)
    shown(text).encode("utf-8")
    assert len(shown(text)) >= len(text)


def test_names_are_listed_as_one_writes_them() -> None:
    assert listed(["a"]) == "a" and listed(["a", "b<"]) == "a and b&lt;"
    assert listed([bdi("a"), "b", "c"]) == '<bdi dir="auto">a</bdi>, b and c'


def test_the_same_study_gives_the_same_bytes(whole: str) -> None:
    assert html(made_up_report.whole()) == whole


def test_cells_hold_score_deviation_marks_and_the_published_number() -> None:
    made = study()
    table = made.tables[1]
    row = next(r for r in made.tests[0].rows if r.name == "over 100")
    score = row.cells[1].scores["BLEU"]
    page = html(replace(made, tables=[table]))
    section = page[page.index('<section id="tables"') : page.index('<section id="lengths"')]
    line = section[section.index("relative 100</bdi>") :]
    cells = re.findall(r"<td.*?</td>", line, re.DOTALL)
    cell = escapes.unescape(re.sub("<[^>]+>", "|", cells[4 * 2]))  # BLEU of the fifth bucket
    assert score.published is not None
    assert f"{score.mean:.1f}\u00a0±\u00a0{score.deviation:.1f}" in cell
    assert f"{score.low:.1f} to {score.high:.1f}" in cell and "p < 0.001" in cell and "|*^|" in cell
    difference = f"{score.mean - score.published:+.1f}".replace("-", "\u2212")
    assert f"{score.published:.1f} ({difference})" in cell
    for value in score.seeds:
        assert f"{value:.1f}" in cell
    assert "beyond" in cells[8] and 'data-v="' in cells[8]


def test_a_table_without_buckets_has_one_column() -> None:
    page = html(replace(study(), tables=study().tables[:1]))
    section = page[page.index('<section id="tables"') : page.index('<section id="lengths"')]
    first = section.split('<div class="part">')[1]
    assert first.count("<td") == 2 and "all pairs" in first


def test_sections_without_values_are_left_out() -> None:
    def sections(made: Making) -> list[str]:
        found = [str(a["id"]) for a in tree_of(made).all("section")]
        links = [str(a["href"])[1:] for a in tree_of(made).all("a")][1:]
        assert links == found[1:]
        return found

    assert sections(empty) == ["summary", "about"]
    assert sections(bare) == ["summary", "tables", "size", "about"]
    every = [*("summary", "tables", "lengths", "learning", "size", "undertranslation")]
    assert sections(study) == [*every, "examples", "attention", "about"]


def test_places_and_losses_are_shown_where_they_are_known(whole: str) -> None:
    assert "Parts: 6-grams that arrived, by place and number of parts" in whole
    for label in ("Parts: 6-grams too many, concat_seq", "Lost beyond the trained length"):
        assert f'aria-label="{label}' in whole
    assert "60.0 % [58.0 %, 63.0 %]" in whole and '<td data-v="201">201</td>' in whole
    (joined,) = [test for test in study().tests if test.places]
    share = Share(-0.1, -0.2, 0.0)
    losses = [parts and replace(parts, pairs=99, end=share) for parts in joined.losses]
    few = html(replace(study(), tests=[replace(joined, losses=losses)], tables=[]))
    assert '<td data-v="99">99, few</td>' in few and "\u221210.0 % [\u221220.0 %, 0.0 %]" in few
    plain = replace(study(), tests=study().tests[:1], tables=[])
    assert "Parts: " not in html(plain) and "Lost beyond" not in html(plain)


def test_lines_of_two_parts_and_of_three_are_not_connected() -> None:
    (joined,) = [test for test in study().tests if test.places]
    charts = [sign.chart for sign in lengths.signs_of(study(), joined) if sign.chart]
    lines = [stroke.d for stroke in charts[-1].strokes if stroke.kind.startswith("l ")]
    assert charts[-1].name == "Parts: 6-grams that arrived, concat_seq"
    assert sorted(len(line[1:].split()) // 2 for line in lines) == [2, 2, 2, 2, 3, 3, 3, 3]


def test_a_large_study_stays_light(whole: str) -> None:
    made = study()
    many = [replace(p, layer=p.layer + 3 * k) for k in range(5) for p in made.profiles]
    small, large = (len(html(replace(made, profiles=own))) for own in ([], many))
    drawn = len(whole) - small
    assert large - small < 6 * drawn < 2_000_000


# Charts and pictures


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9),
    st.booleans(),
)
def test_scales_show_all_values_with_few_round_ticks(values: list[float], log: bool) -> None:
    scale = svg.linear_scale(values, 200.0, 10.0)
    if log:
        values = [abs(v) + 1e-3 for v in values]
        scale = svg.positive(values, 200.0, 10.0)
    assert all(10 - 1e-6 <= scale(v) <= 200 + 1e-6 for v in values)
    ticks = scale.ticks()
    assert len(ticks) <= 7 and ticks == sorted(set(ticks))
    assert all(10 - 0.1 <= scale(t) <= 200 + 0.1 for t in ticks)


def test_limits_that_lie_close_are_numbered_once() -> None:
    rows = [
        BucketScores("0-25", 0, 25, 1, False, []),
        BucketScores("over 25", 26, None, 1, False, []),
    ]
    series = [Series(0, "one", [Point(1.0), Point(2.0)])]
    numbers = {}
    for second in (76, 80, 160):
        limits = [Limit(75, [0], 1.3), Limit(second, [1], 1 + (second - 25) / 175)]
        chart = by_length("x", Bands(rows, "words", limits), series)
        assert [stroke.kind for stroke in chart.strokes].count("limit") == 2
        numbers[second] = [label.text for label in chart.labels if label.text.isdigit()]
    assert [n for n in numbers[160] if n in ("75", "160")] == ["75", "160"]
    assert "76" not in numbers[76] and "75" in numbers[76]
    limits = [Limit(75, [0], 1.3), Limit(200, [1], None)]  # longer than all of this text
    chart = by_length("x", Bands(rows, "words", limits), series)
    assert "75" in [label.text for label in chart.labels]  # whose, the note below says
    assert "beyond" not in [stroke.kind for stroke in chart.strokes]


def test_an_infinite_perplexity_breaks_no_chart() -> None:
    made = study()
    run = made.systems[0].runs[0]
    curve = replace(run.curve, train=[float("inf"), *run.curve.train[1:]])
    system = replace(made.systems[0], runs=[replace(run, curve=curve)])
    page = html(replace(made, systems=[system, *made.systems[1:]]))
    assert not re.search(r'd="[^"]*(nan|inf)', page)


def test_perplexity_by_length_has_a_chart_where_it_is_known() -> None:
    made = study()
    heading = "Perplexity of the references, lower is better"
    assert heading not in html(made)
    test = made.tests[0]
    rows = [
        replace(row, cells=[replace(cell, perplexity=value) for cell in row.cells])
        for row, value in zip(test.rows, (math.inf, *range(2, 20)), strict=False)
    ]
    page = html(replace(made, tests=[replace(test, rows=rows), *made.tests[1:]]))
    assert page.count(heading) == 1 and not re.search(r'd="[^"]*(nan|inf)', page)
    assert '<td data-v="3">3.00</td>' in page  # all digits are in a table


# Side by side


def plain(markup: str) -> str:
    return "".join(data for _, data in Tree(f"<p>{markup}</p>").words)


@given(TEXT, TEXT)
def test_marks_change_no_word(text: str, reference: str) -> None:
    assert plain(examples.differing(text, reference)).replace("\u2038", "") == shown(text).replace(
        "\u2038", ""
    )


def test_differing_words_and_missing_ones_are_marked() -> None:
    found = examples.differing("the small cat sat", "the cat sat on mats")
    assert re.findall("<mark>(.*?)</mark>", found) == ["small"]
    assert 'aria-label="2 words of the reference left out"' in found
    assert "<mark>" not in examples.differing("a b", "a b")
    assert re.findall("<mark>(.*?)</mark>", examples.differing("我很好", "我不好")) == ["很"]


def test_pieces_are_put_together_as_in_the_text() -> None:
    assert "".join(examples.joined_pieces(["gu@@", "ten", "Tag"])) == "guten Tag "
    assert "".join(examples.joined_pieces(["\u2581gu", "ten", "\u2581Tag"])) == " guten Tag"


def test_little_attention_is_said_in_words_too(whole: str) -> None:
    assert re.search(r"Little attention to \d+ of \d+ pieces: <bdi", whole)
    assert [examples.shade_of(a) for a in (0.0, 0.1, 0.2, 0.5, 2.0)] == [0, 1, 2, 3, 4]


def test_only_the_first_ten_are_open_and_the_most_different_lead() -> None:
    cases = [a for a in tree_of(study).all("details") if a.get("class") == "example"]
    assert ["open" in a for a in cases] == [True] * 10 + [False] * (len(cases) - 10)
    whys = [str(a["data-why"]) for a in cases]
    assert whys == sorted(whys) and set(whys) == {"most different", "worst"}


# Attention


@pytest.mark.parametrize("distances", [[0], [-3, -2, -1, 0], list(range(-REACH, 1)), [5, 6]])
def test_attention_is_drawn_inside_its_chart(distances: list[int]) -> None:
    weights = [1 / len(distances)] * len(distances)
    chart = curve_chart("name", "", [Curve(0, distances, weights)], "pieces", percent=True)
    assert all(0 <= label.x <= chart.width for label in chart.labels)


def test_a_layer_is_the_mean_of_its_heads() -> None:
    profiles = [
        AttentionProfile(0, "t", "b", "encoder", 2, head, 1.0, [-1, 0], weights)
        for head, weights in ((1, [0.2, 0.8]), (2, [0.6, 0.4]))
    ]
    (panel,) = panels.attention_panels(replace(bare(), profiles=profiles))
    (site,) = panel.sites
    assert (panel.layers, site.heads, site.layers) == ([2], [1, 2], {2: {1: (1.0, 8), 2: (1.0, 8)}})
    (drawn,) = (s for s in site.chart.strokes if s.kind.startswith("l "))
    same = curve_chart("", "", [Curve(1, [-1, 0], [0.4, 0.6])], "", percent=True)
    assert drawn in same.strokes
