"""A report as a picture: BLEU with intervals by length, and the length ratio below."""

from pathlib import Path
from typing import Any

from nmt.compare.notation import marks_of
from nmt.compare.report import BucketScores, Report, ScoredTest
from nmt.figure import drawn

SIZE = (8, 4.5)  # inches
LEGEND = 4  # entries in a row
# Okabe and Ito (2008): told apart by readers with any colour vision; shapes help in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
SPREAD = 0.4  # share of a bucket's width over which the systems stand


def draw(report: Report, path: Path) -> None:
    """Draw the main metric of the first test; the file's name decides its format.

    The same report gives the same bytes.
    """
    from matplotlib import rc_context

    test = report.tests[0]
    rows = test.buckets or test.rows
    with rc_context({"text.parse_math": False}), drawn(path, SIZE, font=9) as figure:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
        lines = [_system(top, below, report, rows, s) for s in range(len(report.systems))]
        lines += _training_limits(top, below, report, test)
        _axes(top, below, test, rows)
        style = {"loc": "outside upper left", "frameon": False, "fontsize": 8, "ncols": LEGEND}
        figure.legend(handles=lines, **style)  # by itself it leaves out labels that begin with _


def _system(top: Any, below: Any, report: Report, rows: list[BucketScores], s: int) -> Any:
    """One system: a line through its buckets, each with an interval; hollow where pairs are few."""
    offset = SPREAD * ((s + 0.5) / len(report.systems) - 0.5)
    style = _style(s)
    metric = report.tests[0].metrics[0].name
    filled = [i for i, row in enumerate(rows) if metric in row.cells[s].scores]
    scores = [rows[i].cells[s].scores[metric] for i in filled]
    x, means = [i + offset for i in filled], [score.mean for score in scores]
    (line,) = top.plot(x, means, label=report.systems[s].label, markersize=5, linewidth=1, **style)
    # a percentile interval of few pairs may not contain its score; a bar cannot be negative
    low = [max(0.0, score.mean - score.low) for score in scores]
    high = [max(0.0, score.high - score.mean) for score in scores]
    bars = {"ecolor": style["color"], "capsize": 3, "linewidth": 1}
    top.errorbar(x, means, yerr=[low, high], fmt="none", **bars)
    for at, i, mean in zip(x, filled, means, strict=True):
        if rows[i].few:
            top.plot([at], [mean], markersize=5, linestyle="", markerfacecolor="white", **style)
    ratios = [(at, rows[i].cells[s].ratio) for at, i in zip(x, filled, strict=True)]
    known = [(at, ratio) for at, ratio in ratios if ratio is not None]
    below.plot([x for x, _ in known], [r for _, r in known], markersize=4, linewidth=1, **style)
    return line


def _style(s: int) -> dict[str, str]:
    """Colour and marker of a system: another pair for each of the first 49."""
    before = s // len(COLOURS)  # how often all colours were used
    return {"color": COLOURS[s % len(COLOURS)], "marker": MARKERS[(s + before) % len(MARKERS)]}


def _training_limits(top: Any, below: Any, report: Report, test: ScoredTest) -> list[Any]:
    """A line where the texts get longer than any in training; one for each such length."""
    limits, lines = report.trained_limits(test), []
    for longest, systems in limits.items():
        place = test.axis_position(longest)
        if place is None:
            continue
        whose = (
            "" if len(limits) == 1 else ", " + ", ".join(report.systems[s].label for s in systems)
        )
        colour = COLOURS[systems[0] % len(COLOURS)] if len(limits) > 1 else "0.35"
        label = f"longest in training: {longest}{whose}"
        style = {"color": colour, "linestyle": "--", "linewidth": 1, "zorder": 0}
        lines.append(top.axvline(place - 0.5, label=label, **style))
        below.axvline(place - 0.5, **style)
    return lines


def _axes(top: Any, below: Any, test: ScoredTest, rows: list[BucketScores]) -> None:
    metric = test.metrics[0]
    top.set_ylabel(metric.name)
    top.set_ylim(bottom=0)
    below.set_ylabel("length ratio")
    below.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    below.set_xticks(range(len(rows)), [f"{row.name}\nn = {row.pairs:,}" for row in rows])
    below.set_xlim(-0.5, len(rows) - 0.5)
    below.set_xlabel(f"{test.side} length in {test.unit}" if test.unit else "all pairs")
    for axes in (top, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    few = "; hollow: few pairs" if marks_of(rows).few else ""
    title = f"{metric.name} by {test.side} length, 95% intervals{few}"
    top.set_title(title, fontsize=9, loc="left")
