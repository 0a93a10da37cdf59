"""The picture of LONGTEXT: BLEU by source length, on the embedded corpus and on the manuals."""

from pathlib import Path
from typing import Any

from nmt.compare.plot import COLOURS, MARKERS
from nmt.figure import drawn
from scripts.longtext.plan import GRAMMAR, LONGEST, MANUALS, ON_MANUALS
from scripts.longtext.systems import SeededSystem, scored
from scripts.longtext.texts import WHOLE

BOUNDS = {GRAMMAR: [12, 24, 36, 48, 64, 96, 128, 160], MANUALS: [12, 25, 38, 50, 75, 100]}
TITLES = {GRAMMAR: "embedded corpus", MANUALS: "manuals"}
SPREAD = 0.5  # share of a group's width over which the encodings stand


def draw(systems: dict[str, list[SeededSystem]], path: Path) -> None:
    """Draw the encodings of the manuals; the same records give the same bytes."""
    parts = [part for part in (GRAMMAR, MANUALS) if systems[part]]
    if not parts:
        return
    with drawn(path, (9, 4), font=9) as figure:
        panels = figure.subplots(1, len(parts), squeeze=False)[0]
        for panel, part in zip(panels, parts, strict=True):
            _panel(panel, part, [s for s in systems[part] if s.label in ON_MANUALS])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", frameon=False, ncols=len(labels))


def _panel(panel: Any, part: str, systems: list[SeededSystem]) -> None:
    test = scored(systems, WHOLE, BOUNDS[part], ["BLEU"])
    rows = [row for row in test.buckets if row.pairs]
    for s, system in enumerate(systems):
        number = ON_MANUALS.index(system.label)
        x = [i + SPREAD * ((s + 0.5) / len(systems) - 0.5) for i in range(len(rows))]
        scores = [row.cells[s].scores["BLEU"] for row in rows]
        means = [score.mean for score in scores]
        ends = [
            [max(0.0, score.mean - score.low) for score in scores],
            [max(0.0, score.high - score.mean) for score in scores],
        ]
        style = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4}
        panel.errorbar(
            x, means, yerr=ends, label=system.label, linewidth=1, elinewidth=0.8, **style
        )
    edge = test.axis_position(LONGEST[part])
    if edge is not None:
        panel.axvline(edge - 0.5, color="0.35", linestyle="--", linewidth=1, zorder=0)
    panel.set_xticks(range(len(rows)), [row.name for row in rows], rotation=30)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("BLEU")
    panel.set_xlabel("subword pieces of the source; dashed: the longest in training")
    title = f"{TITLES[part]}, {len(systems[0].runs)} seeds; 95 % intervals"
    panel.set_title(title, fontsize=9, loc="left")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="0.9", linewidth=0.6)
