"""The tables of LONGTEXT, as docs/longtext/tables.md, and its picture, from the records alone.

python -m scripts.longtext.tables [--records DIR] [--output DIR]
"""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.storage import atomic
from scripts.longtext import picture, plan
from scripts.longtext.loss_tables import decomposition, places_of, remedy
from scripts.longtext.plan import GRAMMAR, MANUALS, RECORDS, REMEDY, SCAN, Places
from scripts.longtext.score_tables import TITLES, against, anchor, by_length, ranking
from scripts.longtext.systems import SAMPLES, System, best_first, systems_of

OPENING = f"""# LONGTEXT: the tables

Written by `make longtext-tables` from the files below `records`; the [plan](plan.md) says what was
run and why. Brackets are 95 % intervals over lines and seeds, {SAMPLES:,} samples (1,000 by length
and by place); `±` is the deviation of seeds. Only planned contrasts have a p, corrected by Holm;
all else is exploratory.
"""

Systems = dict[str, list[System]]  # by part


def main(argv: list[str] | None = None) -> int:
    """The script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Write the page, and the picture next to the pages of documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, metavar="DIR", default=RECORDS)
    parser.add_argument("--output", type=Path, metavar="DIR", default=RECORDS.parent)
    asked = parser.parse_args(argv)
    places = Places(Path(), asked.records)
    parts = plan.parts(places)[1:]
    systems = {part.name: systems_of(places, part) for part in parts}
    systems |= {part: best_first(systems[part], part) for part in (GRAMMAR, MANUALS)}
    text = page(systems, sum(part.planned for part in parts))
    atomic.replace(asked.output / "tables.md", text.encode())
    picture.draw(systems, asked.output / "longtext.png")


def page(systems: Systems, planned: int) -> str:
    """All tables for whose runs there are records, of so many that are planned."""
    sections = [OPENING]
    if (done := sum(len(s.runs) for part in systems.values() for s in part)) < planned:
        sections.append(f"**So far {done} of {planned} runs are finished.**")
    real = [part for part in (GRAMMAR, MANUALS) if systems[part]]
    for part in real:
        sections += [f"## Ranks: {TITLES[part]}", ranking(part, systems[part])]
        sections += [by_length(part, systems[part], side) for side in ("source", "reference")]
    for part in real:
        sections += [f"## What is lost: {TITLES[part]}", decomposition(systems[part])]
    if len(real) == 2:
        sections += ["## The grammar against real text", against(*(systems[p] for p in real))]
    for part in real:
        sections += [f"## By place in joined lines: {TITLES[part]}", places_of(part, systems[part])]
    if systems[SCAN]:
        sections += ["## Anchor: SCAN beyond 26 actions", anchor(systems[SCAN])]
    if systems[REMEDY] and systems[MANUALS]:
        sections += ["## The remedy: joined lines", remedy(systems[REMEDY])]
    return "\n\n".join(section.strip() for section in sections) + "\n"


if __name__ == "__main__":
    sys.exit(main())
