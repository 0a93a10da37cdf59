"""The paper's tables over named tests and systems."""

import logging
import re
from collections.abc import Sequence

from nmt.compare import published
from nmt.compare.report import PaperTable
from nmt.compare.scores import MOSES, UNSPACED
from nmt.errors import UserError
from nmt.experiments.systems import System
from nmt.experiments.testsets import ParallelFiles

log = logging.getLogger(__name__)

METRICS = ("BLEU-moses", "TER-moses")  # of the paper; plain ones where Moses knows no words


def tables_of(
    tests: Sequence[ParallelFiles],
    systems: Sequence[System],
    papers: Sequence[str],
    metrics: Sequence[str] | None = None,
) -> tuple[list[PaperTable], list[System]]:
    """The paper's tables (table1 ... table4), and the systems with their names in the paper.

    Its numbers stand beside those of systems that are called as there. Raises UserError for a
    table that is not there, or whose test is not, and where no system is called so.
    """
    if metrics is None:
        metrics = METRICS
        languages = {m.settings.data.target_language for s in systems for m in s.models[:1]}
        if papers and languages.intersection(UNSPACED):
            metrics = [name.removesuffix(MOSES) for name in METRICS]
            log.warning("Moses does not segment %s: tables show BLEU and TER", *languages)
    tables = []
    for paper in papers:
        name, test = _paper_table(paper, tests)
        buckets = len(published.pairs(name)) > 1
        every = list(range(len(systems)))
        caption = f"{test.about}; beside the paper's"
        tables.append(PaperTable(name, caption, test.name, every, [*metrics], True, buckets))
    if not tables:
        return [], list(systems)
    known = {system for table in tables for system in published.systems(table.name)}
    named = [s._replace(published=s.label if s.label in known else None) for s in systems]
    if not any(system.published for system in named):
        raise UserError(
            f"--published {','.join(papers)}: no system is called as one of the paper's; "
            f"give LABEL=RUN with one of {', '.join(sorted(known))}"
        )
    return tables, named


def _paper_table(paper: str, tests: Sequence[ParallelFiles]) -> tuple[str, ParallelFiles]:
    """The paper's table that `table2` means, and its test, which must be there."""
    number = re.fullmatch(r"table *(\d+)", paper.strip().lower())
    name = f"Table {number[1]}" if number else paper
    known = [table for table in published.tables() if re.match(rf"{re.escape(name)}(,|$)", table)]
    if not known:
        raise UserError(f"--published {paper}: choose from table1, table2, table3, table4")
    for table in known:
        if test := next((t for t in tests if t.name == published.test_of(table)), None):
            return table, test
    missing = " or ".join(published.test_of(table) for table in known)
    raise UserError(f"--published {paper}: of the test {missing}; add --test {missing}=SRC,REF")
