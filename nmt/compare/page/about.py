"""What is needed to understand the numbers and to make them again."""

import json
from collections.abc import Iterable
from typing import Any

from nmt.compare.page.markup import Child, Markup, bdi, box, details, nothing, section, tag
from nmt.compare.report import Report


def render(report: Report) -> Markup:
    """Notes in the open; signatures, versions and settings to be opened."""
    notes: Child = tag("ul", [tag("li", note, dir="auto") for note in report.notes])
    return section(
        "about",
        "About this report",
        notes if report.notes else nothing("No notes."),
        details("Signatures of the scores", _signatures(report), class_="fold"),
        details("Versions, files and settings", _settings(report), class_="fold"),
    )


def _signatures(report: Report) -> Markup:
    rows = [
        tag(
            "tr",
            tag("th", bdi(test.name), " ", bdi(metric.name), scope="row"),
            tag("td", bdi(metric.title)),
            tag("td", tag("code", metric.signature)),
        )
        for test in report.tests
        for metric in test.metrics
    ]
    if not rows:
        return nothing("Nothing was scored.")
    names = ("Test set and score", "Title", "Signature")
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    label = "Signatures of the scores"
    table = tag("table", tag("thead", head), tag("tbody", rows), aria_label=label, class_="words")
    return box(label, table)


def _settings(report: Report) -> Markup:
    values = [("bootstrap.samples", report.samples), ("bootstrap.seed", report.seed)]
    rows = [
        tag("tr", tag("th", bdi(key), scope="row"), tag("td", tag("code", _written(value))))
        for key, value in [*values, *flat(report.about)]
    ]
    head = tag("tr", [tag("th", name, scope="col") for name in ("Key", "Value")])
    label = "Versions, files and settings"
    table = tag("table", tag("thead", head), tag("tbody", rows), aria_label=label, class_="words")
    return box(label, table)


def flat(values: dict[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Nested settings as `outer.inner` keys."""
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
