"""The tables of a report over named tests, laid out as the paper's where that is wanted."""

import logging
import re
from collections.abc import Sequence

from nmt.compare import published
from nmt.compare.report import PaperTable
from nmt.compare.scores import UNSPACED
from nmt.errors import UserError
from nmt.experiments.report import MOSES
from nmt.experiments.systems import SeededSystem
from nmt.experiments.testsets import ParallelFiles

log = logging.getLogger(__name__)

METRICS = ("BLEU-moses", "TER-moses")  # of the paper; plain ones where Moses knows no words


def tables_of(
    tests: Sequence[ParallelFiles],
    systems: list[SeededSystem],
    metrics: list[str] | None,
    papers: Sequence[str],
) -> tuple[list[PaperTable], list[SeededSystem]]:
    """A table for each test, and the systems with their names in the paper.

    `papers` (table1 ... table4): the paper's tables, whose numbers stand beside those of systems
    that are called as there. Raises UserError for one that is not there, or whose test is not.
    """
    if metrics is None:
        language = systems[0].runs[0].settings.data.target_language
        metrics = [*METRICS]
        if language in UNSPACED:
            metrics = [name.removesuffix(MOSES) for name in metrics]
            log.warning("Moses does not segment %s: the tables show BLEU and TER", language)
    every = list(range(len(systems)))
    names = [_paper_table(paper, tests) for paper in papers]
    tables = []
    for test in tests:
        fitting = [name for name in names if published.test_of(name) == test.name]
        for name in fitting:
            caption = f"{test.about}; beside the paper's"
            buckets = len(published.pairs(name)) > 1
            tables.append(PaperTable(name, caption, test.name, every, metrics, True, buckets))
        if not fitting:
            tables.append(PaperTable(test.name, test.about, test.name, every, metrics, False, True))
    if names:
        known = {system for name in names for system in published.systems(name)}
        systems = [s._replace(published=s.label if s.label in known else None) for s in systems]
        if not any(system.published for system in systems):
            raise UserError(
                f"--published {','.join(papers)}: no system is called as one of the paper's; "
                f"give LABEL=RUN with one of {', '.join(sorted(known))}"
            )
    return tables, systems


def _paper_table(paper: str, tests: Sequence[ParallelFiles]) -> str:
    """The paper's table that `table2` means, whose test must be there."""
    number = re.fullmatch(r"table *(\d+)", paper.strip().lower())
    name = f"Table {number[1]}" if number else paper
    known = [table for table in published.tables() if re.match(rf"{re.escape(name)}(,|$)", table)]
    if not known:
        raise UserError(f"--published {paper}: choose from table1, table2, table3, table4")
    names = [test.name for test in tests]
    fitting = next((table for table in known if published.test_of(table) in names), None)
    if fitting is None:
        missing = " or ".join(published.test_of(table) for table in known)
        raise UserError(f"--published {paper}: of the test {missing}; add --test {missing}=SRC,REF")
    return fitting
