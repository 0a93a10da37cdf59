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
    """All figures of a report that `nmt-evaluate --json` wrote."""
    report = json.loads(path.read_text(encoding="utf-8"))
    labels = [system["label"] for system in report["systems"]]
    rows = [row for test in report["tests"] for row in _rows_of_test(test, labels)]
    named = {"|".join(where): value for *where, value in rows if value is not None}
    assert len(named) > 20, f"{path}: only {len(named)} figures"
    return named


def _rows_of_test(test: dict[str, Any], labels: list[str]) -> Iterator[Row]:
    for group in test["rows"]:
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
