"""The figures of an evaluation as flat rows, whatever form its report has.

A row is `test|group|system|metric` and its value: `joined|25-48|absolute|BLEU p`. A checkout whose
reports have another form gets a function of its own here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ESTIMATE = ("mean", "deviation", "low", "high", "p")
SIGNS = ("repeated", "repeated_reference", "unattended")
Row = tuple[str, str, str, str, Any]


def rows_of_json(path: Path) -> dict[str, float]:
    """All figures of a report that nmt-evaluate wrote as JSON."""
    report = json.loads(path.read_text(encoding="utf-8"))
    labels = [system["label"] for system in report["systems"]]
    if "figures" in report:
        rows = [row for figure in report["figures"] for row in _rows_of_figure(figure, labels)]
    else:
        rows = [row for test in report["tests"] for row in _rows_of_test(test, labels)]
    named = {"|".join(where): value for *where, value in rows if value is not None}
    assert len(named) > 20, f"{path}: only {len(named)} figures"
    return named


NAMES = {  # of a figure that has only a mean in the older form
    "length ratio": "length ratio",
    "perplexity": "perplexity",
    "left out": "omitted",
    "repeated 4-grams": "repeated",
    "unattended source": "unattended",
    "surplus": "repeated",
}
LOST = {
    "lost within": "within",
    "lost beyond": "beyond",
    "end sign": "end",
    "place": "place",
    "content": "content",
}


def _rows_of_figure(figure: dict[str, Any], labels: list[str]) -> Iterator[Row]:
    """The rows of one figure, by the names of the older form; none of figures that it lacks."""
    test, group, system, metric = (figure[key] for key in ("test", "group", "system", "metric"))
    if system not in labels:  # the references', which the older form has with each system
        for label in labels if group != "beyond training" else ():
            yield test, group, label, "repeated_reference", figure["mean"]
        return
    if metric in LOST:
        if group == "beyond training":
            yield test, group, system, "pairs", figure["pairs"]
        for part in ("mean", "low", "high"):
            yield test, "beyond training", system, f"lost, {LOST[metric]} {part}", figure[part]
        return
    if group == "beyond training" or metric == "lost 6-grams":
        return
    if " of " in group:
        group = f"place {group}"
    else:
        yield test, group, system, "pairs", figure["pairs"]
    if metric in NAMES:
        yield test, group, system, NAMES[metric], figure["mean"]
    elif metric == "arrived":
        for part in ("mean", "low", "high"):
            yield test, group, system, f"arrived {part}", figure[part]
    else:
        for part in ESTIMATE:
            yield test, group, system, f"{metric} {part}", figure[part]
        for number, value in enumerate(figure["seeds"], start=1):
            yield test, group, system, f"{metric} seed {number}", value


def _rows_of_test(test: dict[str, Any], labels: list[str]) -> Iterator[Row]:
    for group in filter(lambda row: row["pairs"], test["rows"]):
        for label, cell in zip(labels, group["cells"], strict=True):
            where = test["name"], group["name"], label
            yield *where, "pairs", group["pairs"]
            yield *where, "length ratio", cell["ratio"]
            yield *where, "perplexity", cell["perplexity"]
            for metric, score in cell["scores"].items():
                for part in ESTIMATE:
                    yield *where, f"{metric} {part}", score[part]
                for number, value in enumerate(score["seeds"], start=1):
                    yield *where, f"{metric} seed {number}", value
            for sign in SIGNS:
                yield *where, sign, (cell["signs"] or {}).get(sign)
    for place in test["places"]:
        for label, cell in zip(labels, place["cells"], strict=True):
            where = test["name"], f"place {place['place']} of {place['parts']}", label
            for part in ("mean", "low", "high"):
                yield *where, f"arrived {part}", cell["arrived"][part]
            yield *where, "omitted", cell["omitted"]
            yield *where, "repeated", cell["repeated"]
    for label, losses in zip(labels, test["losses"], strict=False):
        for name, estimate in losses.items():
            if name == "pairs":
                yield test["name"], "beyond training", label, "pairs", estimate
                continue
            for part in ("mean", "low", "high"):
                yield test["name"], "beyond training", label, f"lost, {name} {part}", estimate[part]


def rows_of_diagnosis(text: str) -> dict[str, float]:
    """The figures of the two tables that a diagnosis prints."""
    rows: dict[str, float] = {}
    for line in text.split("\n"):
        found = re.search(
            r"^  (\S.*?) {2,}(?:\d+ +)?([\d.]+) % +\[([\d.]+), ([\d.]+)\] +([\d.]+) % +([\d.]+)$",
            line,
        )
        if found:
            names = ("lost", "low", "high", "repeated", "length")
            label, *values = found.groups()
            rows |= {f"{label}|{name}": float(v) for name, v in zip(names, values, strict=True)}
    assert len(rows) >= 30, f"only {len(rows)} figures in\n{text}"
    return rows
