"""A report as a picture: BLEU with intervals by source length, and the length ratio below."""

from pathlib import Path
from typing import Any

from nmt.compare.report import ALL, Report, Row
from nmt.figure import undated

SIZE = (8, 4.5)  # inches
LEGEND = 4  # entries in a row
# Okabe and Ito (2008): told apart by readers with any colour vision; shapes help in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
SPREAD = 0.4  # share of a bucket's width over which the systems stand


def draw(report: Report, path: Path) -> None:
    """Draw the main metric of a report; the file's name decides its format.

    The same report gives the same bytes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = [row for row in report.rows if row.name != ALL] or report.rows
    with matplotlib.rc_context({"svg.hashsalt": "nmt", "font.size": 9}):
        figure = Figure(figsize=SIZE, layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
        for s, label in enumerate(report.systems):
            _system(top, below, report, rows, s, label)
        _trained(top, below, report, rows)
        _axes(top, below, report, rows)
        figure.legend(loc="outside upper left", frameon=False, fontsize=8, ncols=LEGEND)
        figure.savefig(path, dpi=150, metadata=undated(path))


def _system(top: Any, below: Any, report: Report, rows: list[Row], s: int, label: str) -> None:
    """One system: a line through its buckets, each with an interval; hollow where pairs are few."""
    offset = SPREAD * ((s + 0.5) / len(report.systems) - 0.5)
    look = {"color": COLOURS[s % len(COLOURS)], "marker": MARKERS[s % len(MARKERS)]}
    metric = report.metrics[0].name
    filled = [i for i, row in enumerate(rows) if row.pairs]
    estimates = [rows[i].cells[s].scores[metric] for i in filled]
    x = [i + offset for i in filled]
    scores = [e.score for e in estimates]
    top.plot(x, scores, label=label, markersize=5, linewidth=1, **look)
    top.errorbar(
        x,
        scores,
        # a percentile interval of few pairs may lie beside its score; a bar cannot be negative
        yerr=[
            [max(0.0, e.score - e.low) for e in estimates],
            [max(0.0, e.high - e.score) for e in estimates],
        ],
        fmt="none",
        ecolor=look["color"],
        capsize=3,
        linewidth=1,
    )
    for at, i, score in zip(x, filled, scores, strict=True):
        if rows[i].few:
            top.plot([at], [score], markersize=5, linestyle="", markerfacecolor="white", **look)
    ratios = [(at, rows[i].cells[s].ratio) for at, i in zip(x, filled, strict=True)]
    known = [(at, ratio) for at, ratio in ratios if ratio is not None]
    below.plot([x for x, _ in known], [r for _, r in known], markersize=4, linewidth=1, **look)


def _trained(top: Any, below: Any, report: Report, rows: list[Row]) -> None:
    """A line where the sources get longer than any in training; one for each such length."""
    limits: dict[int, list[int]] = {}
    for s, longest in enumerate(report.longest_trained):
        if longest is not None and report.bounds:
            limits.setdefault(longest, []).append(s)
    for longest, systems in limits.items():
        x = _place(longest, rows, report.longest_tested)
        if x is None:
            continue
        whose = "" if len(limits) == 1 else f", {', '.join(report.systems[s] for s in systems)}"
        colour = COLOURS[systems[0] % len(COLOURS)] if len(limits) > 1 else "0.35"
        label = f"longest in training: {longest}{whose}"
        top.axvline(x, color=colour, linestyle="--", linewidth=1, zorder=0, label=label)
        below.axvline(x, color=colour, linestyle="--", linewidth=1, zorder=0)


def _place(longest: int, rows: list[Row], longest_tested: int | None) -> float | None:
    """Where on the axis of buckets a length lies; None if no source of the test is longer."""
    if longest_tested is None or longest >= longest_tested:
        return None
    for i, row in enumerate(rows):
        high = longest_tested if row.high is None else row.high
        if longest <= high:
            return i - 0.5 + (longest - row.low + 1) / (high - row.low + 1)
    return None


def _axes(top: Any, below: Any, report: Report, rows: list[Row]) -> None:
    metric = report.metrics[0]
    top.set_ylabel(metric.name)
    top.set_ylim(bottom=0)
    below.set_ylabel("length ratio")
    below.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    below.set_xticks(
        range(len(rows)),
        [f"{row.name}\nn = {row.pairs:,}" for row in rows],
    )
    below.set_xlim(-0.5, len(rows) - 0.5)
    below.set_xlabel(f"source length in {report.unit}" if report.unit else "all pairs")
    for axes in (top, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    few = "; hollow: few pairs" if any(row.few for row in rows) else ""
    title = f"{metric.name} by source length, 95% intervals{few}"
    top.set_title(title, fontsize=9, loc="left")
