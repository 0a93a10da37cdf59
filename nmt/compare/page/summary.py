"""The head of the page: what was compared, when, by which command, and what came out."""

from nmt.compare.page.finding import finding
from nmt.compare.page.markup import Child, Markup, bdi, listed, nothing, section, tag
from nmt.compare.page.numbers import count
from nmt.compare.report import Report

SECTIONS = {  # in the order of the page
    "tables": "Tables",
    "lengths": "By length",
    "learning": "Learning",
    "size": "Size and speed",
    "undertranslation": "Under-translation",
    "examples": "Side by side",
    "attention": "Attention",
    "vectors": "Vectors",
    "about": "About",
}


def header(report: Report) -> Markup:
    """Title, date, command, and the button for the theme."""
    theme = tag("button", "Theme: automatic", type="button", id="theme", hidden=True)
    date = tag("time", report.date, datetime=report.date)
    command = tag("code", report.command, dir="ltr", tabindex=0)
    return tag(
        "header",
        tag("div", tag("p", "nmt report · ", date, class_="over"), theme, class_="bar"),
        tag("h1", report.title, dir="auto"),
        tag("p", command, class_="command"),
    )


def navigation() -> Markup:
    """Links to the sections."""
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, words in SECTIONS.items()]
    return tag("nav", tag("ul", links), aria_label="Sections")


def render(report: Report) -> Markup:
    """What was compared, and one finding for each test set."""
    if not report.systems or not report.tests:
        missing = "systems" if not report.systems else "test sets"
        return section("summary", "Summary", nothing(f"No {missing}: nothing was compared."))
    findings = []
    for test in report.tests:
        said, trust = finding(report, test)
        findings += [tag("p", said, class_="finding"), tag("p", trust) if trust else None]
    return section(
        "summary",
        "Summary",
        findings,
        tag("p", _compared(report)),
        tag("p", _read(report), class_="note"),
    )


def _compared(report: Report) -> list[Child]:
    systems = listed(bdi(system.label) for system in report.systems)
    n = len(report.systems)
    said: list[Child] = [f"{n} system{'s' * (n != 1)} compared, {_seeds(report)}: ", *systems, ". "]
    tests = [[bdi(test.name), f" ({count(test.rows[-1].pairs)} pairs)"] for test in report.tests]
    return [*said, "Tested on ", *listed(tests), "."]


def _seeds(report: Report) -> str:
    numbers = sorted({len(system.runs) for system in report.systems})
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]} seeds each"
    return "one seed each" if numbers == [1] else f"{numbers[0]} seeds each"


def _read(report: Report) -> list[Child]:
    said = f"Intervals: bootstrap of {report.samples:,} samples over the pairs, seeds held fixed."
    if len(report.systems) < 2:
        return [said]
    base = bdi(report.systems[0].label)
    return [
        said,
        " p: paired bootstrap against ",
        base,
        ", two-sided, not corrected for the number of comparisons.",
    ]
