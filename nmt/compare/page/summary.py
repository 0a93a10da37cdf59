"""The head of the page: what was compared, when, by which command, and what came out."""

from nmt.compare.page.finding import finding
from nmt.compare.page.markup import Child, Markup, bdi, listed, nothing, section, tag
from nmt.compare.page.numbers import count
from nmt.compare.study import Study

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


def header(study: Study) -> Markup:
    """Title, date, command, and the button for the theme."""
    theme = tag("button", "Theme: automatic", type="button", id="theme", hidden=True)
    date = tag("time", study.date, datetime=study.date)
    command = tag("code", study.command, dir="ltr", tabindex=0)
    return tag(
        "header",
        tag("div", tag("p", "nmt report · ", date, class_="over"), theme, class_="bar"),
        tag("h1", study.title, dir="auto"),
        tag("p", command, class_="command"),
    )


def navigation() -> Markup:
    """Links to the sections."""
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, words in SECTIONS.items()]
    return tag("nav", tag("ul", links), aria_label="Sections")


def render(study: Study) -> Markup:
    """What was compared, and one finding for each test set."""
    if not study.systems or not study.tests:
        missing = "systems" if not study.systems else "test sets"
        return section("summary", "Summary", nothing(f"No {missing}: nothing was compared."))
    findings = []
    for test in study.tests:
        said, trust = finding(study, test)
        findings += [tag("p", said, class_="finding"), tag("p", trust) if trust else None]
    return section(
        "summary",
        "Summary",
        findings,
        tag("p", _compared(study)),
        tag("p", _read(study), class_="note"),
    )


def _compared(study: Study) -> list[Child]:
    systems = listed(bdi(system.label) for system in study.systems)
    n = len(study.systems)
    said: list[Child] = [f"{n} system{'s' * (n != 1)} compared, {_seeds(study)}: ", *systems, ". "]
    tests = [[bdi(test.name), f" ({count(test.rows[-1].pairs)} pairs)"] for test in study.tests]
    return [*said, "Tested on ", *listed(tests), "."]


def _seeds(study: Study) -> str:
    numbers = sorted({len(system.runs) for system in study.systems})
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]} seeds each"
    return "one seed each" if numbers == [1] else f"{numbers[0]} seeds each"


def _read(study: Study) -> list[Child]:
    said = f"Intervals: bootstrap of {study.samples:,} samples over the pairs, seeds held fixed."
    if len(study.systems) < 2:
        return [said]
    base = bdi(study.systems[0].label)
    return [
        said,
        " p: paired bootstrap against ",
        base,
        ", two-sided, not corrected for the number of comparisons.",
    ]
