"""The tables of LONGTEXT, as docs/longtext/tables.md, and its picture, from the records alone.

python -m scripts.longtext.tables [--records DIR] [--output DIR]
"""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.errors import Exit, UserError
from nmt.storage import atomic
from scripts.longtext import picture, plan
from scripts.longtext.loss_tables import by_place, decomposition, remedy
from scripts.longtext.plan import ENCODINGS, RECORDS, REMEDY, SCAN, Folders
from scripts.longtext.score_tables import TITLES, against, anchor, by_length, ranking, rates
from scripts.longtext.systems import SAMPLES, SeededSystem, best_first, systems_of

OPENING = f"""# LONGTEXT: the tables

Written by `make longtext-tables` from the files below `records`; the [plan](plan.md) says what was
run and why. Brackets are 95 % intervals over lines and seeds of this one corpus, {SAMPLES:,}
samples (1,000 by length and by place); `±` is the deviation of seeds. Only planned contrasts have
a p, corrected by Holm; all else is exploratory.
"""


def main(argv: list[str] | None = None) -> int:
    """The script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Write the page, and the picture next to it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, metavar="DIR", default=RECORDS)
    parser.add_argument("--output", type=Path, metavar="DIR", default=RECORDS.parent)
    asked = parser.parse_args(argv)
    if not asked.records.is_dir():
        raise UserError(f"--records {asked.records}: no such directory", Exit.NO_INPUT)
    asked.output.mkdir(parents=True, exist_ok=True)
    folders = Folders(Path(), asked.records)
    systems = {}
    for part in plan.parts(folders)[1:]:
        of_part = systems_of(folders, part)
        ranked = part.name in TITLES
        systems[part.name] = best_first(of_part, part.name) if ranked else of_part
    atomic.replace(asked.output / "tables.md", page(folders, systems).encode())
    picture.draw(systems, asked.output / "longtext.png")


def page(folders: Folders, systems: dict[str, list[SeededSystem]]) -> str:
    """The tables of all parts that are finished."""
    low, exact_match = anchor(systems[SCAN]) if systems[SCAN] else ("", "")
    sections = [OPENING, *[low] * bool(low), *unfinished(folders)]
    perplexities = {name: plan.rate_perplexities(folders, name) for name in ENCODINGS}
    if all(perplexities.values()):
        sections += ["## Rates", rates(perplexities)]
    real = [part for part in TITLES if systems[part]]
    for part in real:
        sections += [f"## Ranks: {TITLES[part]}", ranking(part, systems[part])]
        sections += [by_length(part, systems[part], side) for side in ("source", "reference")]
    for part in real:
        sections += [f"## What is lost: {TITLES[part]}", decomposition(systems[part])]
    if len(real) == 2:
        both = against(*(systems[part] for part in real))
        sections += ["## The embedded corpus against the manuals", both]
    for part in real:
        sections += [f"## By place in joined lines: {TITLES[part]}", by_place(part, systems[part])]
    if systems[SCAN]:
        sections += ["## Anchor: SCAN beyond 26 actions", exact_match]
    if systems[REMEDY]:
        sections += ["## The remedy: joined lines", remedy(systems[REMEDY])]
        sections += [by_length(REMEDY, systems[REMEDY], "source")]
        sections += [by_place(REMEDY, systems[REMEDY])]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def unfinished(folders: Folders) -> list[str]:
    """What is still missing, in a sentence; nothing at the end."""
    missing = []
    for part in plan.parts(folders):
        done = sum(run.is_finished(folders) for run in part.runs)
        if done < part.planned:
            missing.append(f"{part.name} {done} of {part.planned}")
    if not missing:
        return []
    return [f"**Not finished yet, and not shown: {', '.join(missing)} runs.**"]


if __name__ == "__main__":
    sys.exit(main())
