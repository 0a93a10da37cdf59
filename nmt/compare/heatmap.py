"""A ranking as a picture: a row for each system, a column for each bucket, colour for the score."""

from pathlib import Path
from typing import Any

from nmt.compare.notation import BEYOND, interval, number
from nmt.compare.ranking import Ranking
from nmt.compare.report import Report
from nmt.figure import drawn

CELL = (1.55, 0.235)  # inches
MARGINS = (2.6, 1.25)  # inches for names and headings
DARK = 0.45  # cells of less luminance get white letters


def draw(report: Report, path: Path) -> None:
    """Draw the main metric of the first test by bucket, ranked; the name decides the format.

    Each cell holds the score and its 95% interval, so that the picture needs no table.
    The same report gives the same bytes.
    """
    from matplotlib import colormaps

    ranking = Ranking(report, report.tests[0])
    rows, order = ranking.test.filled, ranking.order
    scores = [[row.cells[s].scores[ranking.metric.name] for row in rows] for s in order]
    means = [[score.mean for score in line] for line in scores]
    size = (MARGINS[0] + CELL[0] * len(rows), MARGINS[1] + CELL[1] * len(order))
    with drawn(path, size, font=8) as figure:
        axes = figure.subplots()
        colours = colormaps["viridis" if ranking.metric.higher_is_better else "viridis_r"]
        top = max(1.0, *(mean for line in means for mean in line))
        axes.imshow(means, aspect="auto", cmap=colours, vmin=0, vmax=top)
        for y, line in enumerate(scores):
            for x, score in enumerate(line):
                red, green, blue, _ = colours(score.mean / top)
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < DARK
                text = f"{number(score.mean)}  {interval(score)}"
                colour = "white" if dark else "black"
                axes.text(x, y, text, ha="center", va="center", fontsize=7, color=colour)
        _axes(axes, ranking)


def _axes(axes: Any, ranking: Ranking) -> None:
    rows, order = ranking.test.filled, ranking.order
    beyond = [all(cell.beyond for cell in row.cells) for row in rows]
    names = [
        f"{row.name}{BEYOND if far else ''}\nn = {row.pairs:,}"
        for row, far in zip(rows, beyond, strict=True)
    ]
    axes.set_xticks(range(len(rows)), names)
    axes.set_yticks(range(len(order)), [ranking.report.systems[s].label for s in order])
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([x + 0.5 for x in range(len(rows) - 1)], minor=True)
    axes.set_yticks([y + 0.5 for y in range(len(order) - 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="minor", length=0, top=False, bottom=False)
    if len(rows) > 1:  # a gap: "all" is no bucket
        axes.axvline(len(rows) - 1.5, color="white", linewidth=5)
    mark = "\n^ longer than any source in training" if any(beyond) else ""
    unit = f" by length in {ranking.test.unit}" if ranking.test.unit else ""
    title = f"{ranking.metric.name}{unit}, 95% intervals, {ranking.report.date}{mark}"
    axes.set_title(title, fontsize=9, loc="left")
