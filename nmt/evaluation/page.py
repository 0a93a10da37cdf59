"""A report as one HTML page that needs nothing else (no network, font or script), and as pictures.

The template escapes every string, and spells out its invisible characters. Whatever a hostile test
set might smuggle past that, a browser refuses by the policy in the page's head.
"""

import base64
import io
import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from nmt.config.check import flatten
from nmt.evaluation import notation
from nmt.evaluation.lost import LOST
from nmt.evaluation.metrics import RATIO, Metric
from nmt.evaluation.notation import CARET, count, spell_out, title_of
from nmt.evaluation.report import Group, Report, TranslatedTest
from nmt.figure import MISSING, draw_figure, is_installed

TEMPLATE = Path(__file__).with_name("page.jinja")
OPEN = 8  # examples that are open at first
GAP = "\u2038"  # words of the reference are missing here
SIZE = (8, 4.5)  # inches, of a file
CHART = (5, 3)  # of one chart on a page: readable at 400 pixels, two side by side on a screen
# Okabe and Ito (2008): told apart by readers with any colour vision; shapes help in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
PLAIN = {"text.parse_math": False}  # labels may have a $
LEGEND = {"loc": "outside upper left", "frameon": False, "fontsize": 8, "ncols": 4}
SPREAD = 0.4  # share of a bucket's width over which the systems stand


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
    has_charts = is_installed()
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report,
        tests=[_show(report, test, has_charts) for test in report.tests],
        settings=_flatten_settings(report),
        OPEN=OPEN,
        GAP=GAP,
        missing="" if has_charts else MISSING,
    )


def _show(report: Report, test: TranslatedTest, has_charts: bool) -> dict[str, Any]:
    """The charts and tables of a test, those of the main metric first."""
    charts = []
    for metric in test.metrics if has_charts and test.unit else ():
        if any(group in test.buckets for group in report.table(test, metric.name)[0]):
            svg = base64.b64encode(draw_chart(report, test, metric).encode()).decode("ascii")
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
    """The text, with words marked that the reference does not have there.

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


# Pictures: a metric with intervals by length


def draw(report: Report, path: Path) -> None:
    """Draw the main metric of the first test, and the length ratio below it, into a file."""
    test = report.tests[0]
    metrics = [test.metrics[0], *(m for m in test.metrics if m.name == RATIO)]
    few = "; hollow: few pairs" if any(bucket.few for bucket in test.buckets) else ""
    title = f"{title_of(metrics[0])} by {test.side} length, 95% intervals{few}"
    with draw_figure(path, SIZE, font=9, **PLAIN) as figure:
        _draw_panels(figure, report, test, metrics, title)
        figure.axes[0].set_ylim(bottom=0)


def draw_chart(report: Report, test: TranslatedTest, metric: Metric) -> str:
    better = {True: ", higher is better", False: ", lower is better", None: ""}
    title = f"{title_of(metric)}{better[metric.higher_is_better]}"
    text = io.StringIO()
    with draw_figure(text, CHART, font=9, **PLAIN) as figure:
        _draw_panels(figure, report, test, [metric], title)
    return text.getvalue()


def _draw_panels(
    figure: Any, report: Report, test: TranslatedTest, metrics: Sequence[Metric], title: str
) -> None:
    ratios = [2.4, 1][: len(metrics)]
    panels = figure.subplots(len(metrics), 1, sharex=True, height_ratios=ratios, squeeze=False)
    for (axes,), metric in zip(panels, metrics, strict=True):
        handles = _draw_metric(axes, report, test, metric)
    panels[0, 0].set_title(spell_out(title), fontsize=9, loc="left")
    _label_buckets(panels[-1, 0], report, test, metrics[0])
    figure.legend(handles=handles, **LEGEND)


def _draw_metric(axes: Any, report: Report, test: TranslatedTest, metric: Metric) -> list[Any]:
    """Draw a line for each system through its buckets, with intervals; hollow: few pairs.

    Returns what a legend names: it leaves out labels that begin with _ unless it gets them.
    """
    handles = []
    groups, scale = _groups(test), 100 if metric.is_share else 1
    for s, label in enumerate(report.labels):
        offset = SPREAD * ((s + 0.5) / len(report.systems) - 0.5)
        figures = [report.figure(metric.name, label, group.name, test.name) for group in groups]
        points = [(i + offset, f, groups[i]) for i, f in enumerate(figures) if f is not None]
        x, means = [at for at, _, _ in points], [scale * f.mean for _, f, _ in points]
        style = _style(s)
        handles += axes.plot(x, means, label=spell_out(label), markersize=5, linewidth=1, **style)
        if metric.is_main:
            # a percentile interval of few pairs may not contain its score; a bar has no negative
            ends = [(scale * (f.low or 0), scale * (f.high or 0)) for _, f, _ in points]
            low = [max(0.0, m - end) for m, (end, _) in zip(means, ends, strict=True)]
            high = [max(0.0, end - m) for m, (_, end) in zip(means, ends, strict=True)]
            bars = {"ecolor": style["color"], "capsize": 3, "linewidth": 1}
            axes.errorbar(x, means, yerr=[low, high], fmt="none", **bars)
        few = [(at, m) for (at, _, group), m in zip(points, means, strict=True) if group.few]
        for at, m in few:
            axes.plot([at], [m], markersize=5, linestyle="", markerfacecolor="white", **style)
    handles += _mark_training(axes, report, test)
    axes.set_ylabel(spell_out(title_of(metric)))
    if metric.name == RATIO:
        axes.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    return handles


def _groups(test: TranslatedTest) -> Sequence[Group]:
    return test.buckets or test.groups[:1]


def _style(s: int) -> dict[str, str]:
    """Colour and marker of a system: another pair for each of the first 49."""
    before = s // len(COLOURS)  # how often all colours were used
    return {"color": COLOURS[s % len(COLOURS)], "marker": MARKERS[(s + before) % len(MARKERS)]}


def _mark_training(axes: Any, report: Report, test: TranslatedTest) -> list[Any]:
    """Draw a dashed line at each length where texts become longer than any in training."""
    limits: dict[int, list[int]] = {}  # systems by the longest text in their training
    for s, longest in enumerate(test.trained):
        if longest is not None:
            limits.setdefault(longest, []).append(s)
    lines = []
    for longest, systems in sorted(limits.items()):
        if (position := axis_position(test, longest)) is None:
            continue
        alone = len(limits) == 1
        whose = "" if alone else ", " + ", ".join(report.labels[s] for s in systems)
        style = {"linestyle": "--", "linewidth": 1, "zorder": 0}
        colour = "0.35" if alone else COLOURS[systems[0] % len(COLOURS)]
        label = f"longest in training: {longest}{whose}"
        lines.append(axes.axvline(position - 0.5, label=spell_out(label), color=colour, **style))
    if lines and len(lines) == len(limits) and None not in test.trained:
        # a wash where all is longer than any in training
        beyond = max(line.get_xdata()[0] for line in lines)
        axes.axvspan(beyond, len(test.buckets) - 0.5, color="#f6efe2", linewidth=0, zorder=-1)
    return lines


def axis_position(test: TranslatedTest, length: int) -> float | None:
    """The position of a length on the axis of buckets, of which the first is from 0 to 1.

    None if nothing of the test is longer.
    """
    if not test.buckets or test.longest is None or length >= test.longest:
        return None
    lengths, positions = list[int](), list[int]()
    for i, bucket in enumerate(test.buckets):
        lengths += [(bucket.low or 0) - 1, test.longest if bucket.high is None else bucket.high]
        positions += [i, i + 1]
    return float(np.interp(length, lengths, positions))


def _label_buckets(axes: Any, report: Report, test: TranslatedTest, metric: Metric) -> None:
    groups = _groups(test)
    names = []
    for group in groups:
        unseen = any(f and f.unseen for f in report.row(test, group, metric.name))
        names.append(f"{group.name}{f' {CARET}' * unseen}\nn = {count(group.pairs)}")
    axes.set_xticks(range(len(groups)), names)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    unit = spell_out(f"{test.side} length in {test.unit}")
    axes.set_xlabel(unit if test.buckets else "all pairs")
