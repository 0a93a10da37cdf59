"""The page in a real browser: no complaint, no request, and all its controls by keyboard."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.compare.page import html
from tests.compare import browser as driver
from tests.compare.browser import Browser
from tests.compare.made_up_report import bare, empty
from tests.compare.made_up_report import whole as study

PROGRAM = driver.found()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason=f"no browser here; install one of {', '.join(driver.NAMES)}"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html(study()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(running: Browser, page: Path) -> Browser:
    """The page of the made-up study, as on a first visit with a desktop's window."""
    running.size(1280)
    running.open(page)
    running.run("localStorage.clear()")
    running.open(page)
    return running


def focus(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).focus()")
    assert browser.run(f"document.activeElement === document.querySelector({selector!r})")


def enter(browser: Browser) -> None:
    browser.press("Enter", 13, "\r")


def shown(browser: Browser, selector: str) -> list[bool]:
    script = f"[...document.querySelectorAll({selector!r})].map((e) => e.checkVisibility())"
    found: list[bool] = browser.run(script)
    assert found, selector
    return found


@pytest.mark.parametrize(
    "made", [study, *(pytest.param(m, marks=pytest.mark.slow) for m in (bare, empty))]
)
def test_no_complaint_and_no_request(running: Browser, tmp_path: Path, made: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text(html(made()), encoding="utf-8")
    running.size(1280)
    running.open(path)
    running.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    running.run("document.querySelectorAll('button').forEach((b) => b.click())")
    assert running.complaints() == []
    assert running.requests() == [path.as_uri()]


def test_errors_and_requests_would_be_seen(running: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<p>x<img src=missing.png><script>console.error('e'); oh()</script>")
    running.open(path)
    assert len(running.requests()) == 2
    said = " ".join(running.complaints())
    assert "'e'" in said and "oh is not defined" in said


@pytest.mark.slow
def test_the_policy_stops_what_would_get_past_the_escaping(
    running: Browser, tmp_path: Path
) -> None:
    attack = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x' onerror="
    attack += "\"document.title = 'taken'\"><p id=styled style='color: red'>"
    path = tmp_path / "page.html"
    path.write_text(html(empty()).replace("<main", attack + "<main"), encoding="utf-8")
    running.open(path)
    assert running.run("document.title") == "Nothing"
    assert running.run("getComputedStyle(styled).color") != "rgb(255, 0, 0)"
    assert len(running.complaints()) >= 3
    failed = [e for e in running.events if e["method"] == "Network.loadingFailed"]
    assert all(e["params"].get("blockedReason") == "csp" for e in failed)


def column(browser: Browser, table: str, index: int) -> list[float | None]:
    script = f"""[...document.querySelector({table!r}).tBodies[0].rows].map(
        (row) => row.cells[{index}].dataset.v === undefined ? null
            : Number(row.cells[{index}].dataset.v))"""
    values: list[float | None] = browser.run(script)
    return values


def test_tables_sort_by_keyboard(browser: Browser) -> None:
    table = "#size table"
    before = column(browser, table, 6)
    focus(browser, f'{table} th[data-c="6"] button')
    for direction in ("ascending", "descending"):
        enter(browser)
        values = column(browser, table, 6)
        assert values != before or direction == "descending"
        ordered = sorted(values, key=lambda v: v or 0.0, reverse=direction == "descending")
        assert values == ordered
        states = browser.run(
            f"[...document.querySelector('{table}').querySelectorAll('th')].slice(0, 8)"
            ".map((h) => h.ariaSort)"
        )
        assert states == ["none"] * 6 + [direction] + ["none"]
    focus(browser, f'{table} th[data-c="0"] button')
    browser.press(" ", 32, " ")
    names = browser.run(
        f"[...document.querySelector('{table}').tBodies[0].rows].map((r) => r.cells[0].innerText)"
    )
    assert [name.strip() for name in names] == [
        "absolute 75", "absolute 100", "LSTM 100", "relative 75", "relative 100"
    ]  # numbers in names sort as numbers  # fmt: skip


@pytest.mark.slow
def test_second_heading_row_sorts_its_own_column_and_missing_values_stay_last(
    browser: Browser, tmp_path: Path
) -> None:
    table = "#tables .part:nth-of-type(2) table"
    focus(browser, f'{table} th[data-c="10"] button')  # TER of the fifth bucket
    enter(browser)
    values = column(browser, table, 10)
    assert None not in values and values == sorted(values, key=lambda v: v or 0.0)
    assert values != column(browser, table, 9)
    made = study()
    system = made.systems[1]
    slow = replace(system, runs=[replace(r, tokens_per_second=None) for r in system.runs])
    path = tmp_path / "page.html"
    path.write_text(
        html(replace(made, systems=[made.systems[0], slow, *made.systems[2:]])), encoding="utf-8"
    )
    browser.open(path)
    for _ in range(2):
        focus(browser, '#size table th[data-c="6"] button')
        enter(browser)
        assert column(browser, "#size table", 6)[-1] is None


def ground(browser: Browser) -> str:
    colour: str = browser.run("getComputedStyle(document.body).backgroundColor")
    return colour


@pytest.mark.slow
def test_colours_follow_the_system(browser: Browser) -> None:
    light = ground(browser)
    browser.size(1280, dark=True)
    assert ground(browser) != light


CONTRAST = """
(names) => {
  const probe = document.createElement("i");
  document.body.append(probe);
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3);
    const [r, g, b] = parts.map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {};
  for (const [a, b] of names) {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    found[`${a} on ${b}`] = (high + 0.05) / (low + 0.05);
  }
  probe.remove();
  return found;
}
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.slow
def test_contrasts_are_those_of_wcag(browser: Browser, dark: bool) -> None:
    browser.size(1280, dark=dark)
    words = [[a, b] for a in ("ink", "soft", "accent") for b in ("paper", "raised", "wash")]
    words += [["ink", "mark"], ["ink", "beyond"], ["soft", "beyond"]]
    marks = [[f"c{i}", "paper"] for i in range(7)]
    for pairs, least in ((words, 4.5), (marks, 3.0)):
        found = browser.run(f"({CONTRAST})({pairs})")
        assert len(found) == len(pairs)
        assert {name: value for name, value in found.items() if value < least} == {}


@pytest.mark.parametrize(
    "width", [320, 1280, *(pytest.param(w, marks=pytest.mark.slow) for w in (360, 390, 768))]
)
def test_nothing_overflows_the_window(browser: Browser, width: int) -> None:
    browser.size(width)
    for opened in ("false", "true"):
        browser.run(f"document.querySelectorAll('details').forEach((d) => (d.open = {opened}))")
        root = "document.documentElement"
        wide, window = browser.run(f"[{root}.scrollWidth, {root}.clientWidth]")
        assert wide <= window
        late = browser.run(
            "[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && "
            "!e.closest('.box, svg, pre') && e.getBoundingClientRect().right > innerWidth + 1)"
            ".map((e) => e.outerHTML.slice(0, 80))"
        )
        assert late == []
    assert browser.run("document.querySelector('#tables .box').tabIndex") == 0


@pytest.mark.slow
def test_long_names_and_many_systems_overflow_neither(running: Browser, tmp_path: Path) -> None:
    made = study()
    systems = [
        replace(made.systems[s % 5], label=label)
        for s, label in enumerate(["x" * 90, "relative, max 100, " * 6, *"abcdefgh"])
    ]
    tests = []
    for test in made.tests:
        rows = [replace(row, cells=row.cells * 2) for row in test.rows]
        rows = [replace(rows[1], name=f"{k}0000-{k}9999") for k in range(9)] + rows[-1:]
        tests.append(replace(test, name="t" * 70, unit="u" * 90, rows=rows, examples=[]))
    long = replace(made, title="w" * 120, systems=systems, tests=tests[:1], tables=[])
    path = tmp_path / "page.html"
    path.write_text(html(long), encoding="utf-8")
    for width in (320, 1280):
        running.size(width)
        running.open(path)
        running.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        root = "document.documentElement"
        wide, window = running.run(f"[{root}.scrollWidth, {root}.clientWidth]")
        assert wide <= window
        assert running.complaints() == []


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.run(
        f"(() => {{ const s = document.querySelector({selector!r}); s.value = {value!r};"
        "s.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )


@pytest.mark.slow
def test_examples_are_chosen_by_bucket_and_reason(browser: Browser) -> None:
    total = len(shown(browser, ".example"))
    assert all(shown(browser, ".example"))
    focus(browser, 'select[data-filter="why"]')
    browser.press("ArrowDown", 40)  # by keyboard: the first that is not `all`
    assert browser.run("document.activeElement.value") == "most different"
    some = shown(browser, ".example")
    assert 0 < sum(some) < total
    choose(browser, 'select[data-filter="bucket"]', "over 100")
    here = browser.run(
        "[...document.querySelectorAll('.example')].filter((e) => !e.hidden)"
        ".map((e) => [e.dataset.why, e.dataset.bucket])"
    )
    assert here and all(pair == ["most different", "over 100"] for pair in here)
    assert browser.run("filtered.textContent") == f"{len(here)} of {total} shown"


@pytest.mark.slow
def test_attention_is_chosen_by_system_and_bucket(browser: Browser) -> None:
    assert sum(shown(browser, ".panel")) == 1
    choose(browser, "#panel-system", "3")
    choose(browser, "#panel-place", "newstest_all|over 100")
    panels = browser.run(
        "[...document.querySelectorAll('.panel')].filter((e) => e.checkVisibility())"
        ".map((e) => [e.dataset.system, e.dataset.place])"
    )
    assert panels == [["3", "newstest_all|over 100"]]
    assert shown(browser, "#no-panel") == [False]


@pytest.mark.slow
def test_a_legend_takes_a_system_out_of_its_charts(browser: Browser) -> None:
    focus(browser, '#lengths .legend input[value="2"]')
    browser.press(" ", 32, " ")
    assert not any(shown(browser, "#lengths .switched .charts .s2")[:4])
    assert all(shown(browser, "#lengths .switched .charts .s1")[:4])
    assert all(shown(browser, "#learning .charts .s2"))


@pytest.mark.slow
def test_intervals_open_one_by_one_and_all_at_once(browser: Browser) -> None:
    details = "#tables td details"
    assert not any(shown(browser, f"{details} p"))
    focus(browser, f"{details} summary")
    enter(browser)
    assert shown(browser, f"{details} p").count(True) == 1
    focus(browser, "#tables .part:nth-of-type(2) input[data-opens]")
    browser.press(" ", 32, " ")
    assert all(shown(browser, "#tables .part:nth-of-type(2) td details p"))
    focus(browser, "#examples input[data-opens]")
    browser.press(" ", 32, " ")
    assert all(shown(browser, "#examples .example[open] .read"))


@pytest.mark.slow
def test_without_scripts_all_can_be_read(browser: Browser, page: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert not any(shown(browser, ".scripted"))
        assert shown(browser, ".panel")[0] and sum(shown(browser, ".panel")) == 1
        assert all(shown(browser, "#tables td summary"))
        assert browser.run("document.querySelectorAll('th button').length") == 0
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.slow
def test_the_skip_link_is_the_first_stop(browser: Browser) -> None:
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    enter(browser)
    assert browser.run("document.activeElement.id") == "content"


@pytest.mark.slow
def test_everything_that_needs_a_name_has_one(browser: Browser) -> None:
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles: dict[str, int] = {}
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        if node.get("ignored") or role not in NAMED:
            continue
        roles[role] = roles.get(role, 0) + 1
        assert node.get("name", {}).get("value", "").strip(), node
    assert set(roles) == NAMED


NAMED = {"image", "button", "table", "checkbox", "combobox", "link", "region", "navigation"}


@pytest.mark.slow
def test_print_shows_the_numbers_and_no_controls(browser: Browser) -> None:
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert not any(shown(browser, "nav, .tool"))
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert all(shown(browser, "#tables td details p"))
        assert browser.ask("Page.printToPDF")["data"]
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")


@pytest.mark.slow
def test_pictures_of_both_themes_are_not_blank(browser: Browser) -> None:
    pictures = set()
    for width in (390, 1280):
        for dark in (False, True):
            browser.size(width, dark=dark)
            data = base64.b64decode(browser.ask("Page.captureScreenshot")["data"])
            assert len(data) > 10_000  # a blank one has some two thousand bytes
            pictures.add(data)
    assert len(pictures) == 4
