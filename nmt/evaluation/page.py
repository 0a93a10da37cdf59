"""A report as one HTML page that needs nothing else: no network, no font, no script.

The template escapes every string, and spells out its invisible characters. Whatever a hostile test
set might smuggle past that, a browser refuses by the policy in the page's head.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from nmt import figure
from nmt.config.check import flatten
from nmt.evaluation import notation, plot
from nmt.evaluation.lost import LOST
from nmt.evaluation.metrics import RATIO, Metric
from nmt.evaluation.notation import spell_out
from nmt.evaluation.report import Report, TranslatedTest

TEMPLATE = Path(__file__).with_name("page.jinja")
OPEN = 8  # examples that are open at first
GAP = "\u2038"  # words of the reference are missing here


def html(report: Report) -> str:
    """The whole page; the same report gives the same bytes. Without matplotlib it has no charts."""
    environment = Environment(
        autoescape=True,
        finalize=lambda value: spell_out(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= vars(notation) | {"mark_differences": mark_differences}
    has_charts = figure.is_installed()
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report,
        tests=[_show(report, test, has_charts) for test in report.tests],
        settings=_flatten_settings(report),
        OPEN=OPEN,
        GAP=GAP,
        missing="" if has_charts else figure.MISSING,
    )


def _show(report: Report, test: TranslatedTest, has_charts: bool) -> dict[str, Any]:
    """The charts and tables of a test, those of the main metric first."""
    charts = []
    for metric in test.metrics if has_charts and test.unit else ():
        if any(group in test.buckets for group in report.table(test, metric.name)[0]):
            svg = base64.b64encode(plot.chart(report, test, metric).encode()).decode("ascii")
            charts.append((metric, f"data:image/svg+xml;base64,{svg}"))
    first = (test.metrics[0].name, RATIO, LOST.name)
    return {
        "test": test,
        "charts": [chart for chart in charts if chart[0].name in first],
        "more_charts": [chart for chart in charts if chart[0].name not in first],
        "scores": [_table(report, test, m) for m in test.metrics if m.is_main],
        "more_tables": [_table(report, test, m) for m in test.metrics if not m.is_main],
    }


def _table(report: Report, test: TranslatedTest, metric: Metric) -> dict[str, Any]:
    """A metric by group.

    best: a mean as it is shown, so that what looks equal is marked alike; none of few pairs.
    """
    groups, rows = report.table(test, metric.name)
    best: list[str | None] = [None] * len(groups)
    if metric.higher_is_better is not None:
        choose = max if metric.higher_is_better else min
        for i, group in enumerate(groups):
            means = [f.mean for f in report.row(test, group, metric.name) if f]
            if len(means) > 1 and not group.few:
                best[i] = notation.number(choose(means), metric.form)
    return {"metric": metric, "groups": groups, "rows": rows.items(), "best": best}


def _flatten_settings(report: Report) -> Iterator[tuple[str, str]]:
    bootstrap = {"bootstrap.samples": report.samples, "bootstrap.seed": report.seed}
    for key, value in flatten(bootstrap | report.about):
        is_text = isinstance(value, str)
        yield key, value if is_text else json.dumps(value, ensure_ascii=False, default=str)


def mark_differences(text: str, reference: str) -> Markup:
    """The text with those words marked that are not at their place in the reference.

    A caret stands where words of the reference are missing. Words are what stands between spaces;
    where the reference has none, every character is one.
    """
    pattern = r"\S+" if re.search(r"\s", reference.strip()) else r"\S"
    words: Sequence[str] = re.findall(pattern, text)
    expected = re.findall(pattern, reference)
    space = " " if pattern == r"\S+" else ""
    parts = []
    for kind, a, b, _, _ in SequenceMatcher(None, words, expected, autojunk=False).get_opcodes():
        run = spell_out(space.join(words[a:b]))
        if kind == "delete" or kind == "replace":
            parts.append(Markup("<mark>{}</mark>").format(run))
        elif kind == "insert":
            parts.append(Markup('<span class="gap">{}</span>').format(GAP))
        else:
            parts.append(Markup.escape(run))
    return Markup(space).join(parts)
