"""What is asked of a report, and whether it fits together: said before the first translation."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.compare import published
from nmt.compare.scores import NAMES, UNSPACED
from nmt.compare.scoring import JoinedParts
from nmt.config import Files
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.errors import Exit, UserError
from nmt.experiments.run import Entrant
from nmt.training.run import standing

PROBLEMS = 3  # named in one error
MOSES = "-moses"  # ends the names of metrics on text tokenised by Moses


class Group(NamedTuple):
    """One system: finished runs of one config, which differ in their seeds alone."""

    label: str  # as the tables show it
    entrants: list[Entrant]  # by seed; all finished
    published: str | None  # key of the published numbers, as `absolute 100`


class TestAsked(NamedTuple):
    """One test set, two files whose lines belong together."""

    name: str  # `newstest_all`; also the name of the translations in the run directories
    about: str  # a sentence on what it is
    source: Path
    reference: Path
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences


class TableAsked(NamedTuple):
    """One table, laid out as in the paper."""

    name: str  # `Table 2`
    caption: str
    test: str  # name of a test
    groups: list[int]  # in the order of the paper
    metrics: list[str]  # in each cell, in order: BLEU-moses, TER-moses
    published: bool  # show the numbers of the paper's table of this name
    buckets: bool  # False: all pairs only


class Wanted(NamedTuple):
    """What is to be made beside the text."""

    html: Path | None
    json: Path | None
    tsv: Path | None
    attention: bool  # look at where the models look
    samples: int  # of the bootstrap
    jobs: int  # processes at once


class Read(NamedTuple):
    """A test set in memory, with those that translate it."""

    asked: TestAsked
    sources: list[str]
    references: list[str]
    parts: JoinedParts | None
    groups: list[int]
    language: str  # of the references


def check(groups: list[Group], tests: list[TestAsked], tables: list[TableAsked]) -> None:
    """Raise UserError for what does not fit together."""
    if not groups or not tests:
        raise UserError(f"nothing to report: {'no test set' if groups else 'no run'} is named")
    for kind, names in (("systems", [g.label for g in groups]), ("tests", [t.name for t in tests])):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"{twice}: two {kind} of this name; give each its own")
    for table in tables:
        if table.test not in [test.name for test in tests]:
            raise UserError(f"{table.name}: no test {table.test!r} is asked for")
        if wrong := [m for m in table.metrics if m not in NAMES]:
            raise UserError(f"{table.name}: no metric {wrong[0]!r}; choose from {', '.join(NAMES)}")
        if not table.groups or not table.metrics or max(table.groups) >= len(groups):
            raise UserError(f"{table.name}: name its systems and metrics")
        if table.published and published.table_of(table.name, table.test) is None:
            raise UserError(
                f"{table.name}: no such table in the paper; {', '.join(published.tables())}"
            )


def read_by_sentence(tests: Sequence[TestAsked]) -> list[TestAsked]:
    """The tests, those of joined lines to be read by sentence; UserError (2) if there are none."""
    joint = [joined.parts_of(test.source, test.reference) is not None for test in tests]
    if not any(joint):
        raise UserError(
            "--by-sentence: no test has joined lines, with the record of nmt-testset beside them"
        )
    return [test._replace(by_sentence=yes) for test, yes in zip(tests, joint, strict=True)]


def check_finished(runs: Sequence[Path]) -> None:
    """Raise UserError (65) unless all runs have ended well."""
    if unfinished := [why for run in runs if (why := _unfinished(run))]:
        raise UserError(few(unfinished), Exit.DATA)


def _unfinished(run: Path) -> str | None:
    """What to say of a run that has not ended well."""
    try:
        reached = standing(run)
    except UserError as error:
        return str(error)
    if reached.finished:
        return None
    return f"{run}: at step {reached.step} of {reached.last}, not finished; train it to the end"


def _translators(test: TestAsked, groups: list[Group], tables: list[TableAsked]) -> list[int]:
    """The groups of the tables that name the test; all, where none does."""
    named = {s for table in tables if table.test == test.name for s in table.groups}
    return sorted(named) or list(range(len(groups)))


def sides(test: TestAsked) -> tuple[list[str], list[str]]:
    """The lines of both sides; raises UserError (65) unless they are parallel."""
    sources, references = read_text(test.source), read_text(test.reference)
    if len(sources) != len(references) or not sources:
        raise UserError(
            f"{test.source}: has {len(sources)} lines, but {test.reference} has "
            f"{len(references)}; line N of both must belong together",
            Exit.DATA,
        )
    return sources, references


def read(test: TestAsked, groups: list[Group], tables: list[TableAsked]) -> Read:
    """Read a test set and see that its systems can translate it, and its metrics score it.

    Raises UserError: 65 for sides of unequal lines, 2 for systems or metrics that do not fit.
    """
    translators = _translators(test, groups, tables)
    sources, references = sides(test)
    entrants = [entrant for s in translators for entrant in groups[s].entrants]
    pairs = {
        (e.asked.settings.data.source_language, e.asked.settings.data.target_language)
        for e in entrants
    }
    if len(pairs) > 1:
        told = ", ".join("-".join(pair) for pair in sorted(pairs))
        raise UserError(f"{test.name}: its systems translate {told}; compare them apart")
    for entrant in entrants:
        _check_columns(entrant, test)
    language = pairs.pop()[1]
    for table in tables:
        moses = next((metric for metric in table.metrics if metric.endswith(MOSES)), None)
        if table.test == test.name and moses and language in UNSPACED:
            plain = moses.removesuffix(MOSES)
            raise UserError(f"{table.name}: Moses does not segment {language}; use {plain}")
    parts = joined.parts_of(test.source, test.reference)
    if test.by_sentence:
        sources = list(joined.by_sentence(test.source))
    return Read(test, sources, references, parts, translators, language)


def _check_columns(entrant: Entrant, test: TestAsked) -> None:
    """Integers beside the source are known for the run's own test set alone."""
    data = entrant.asked.settings.data
    if not isinstance(data, Files) or not data.columns:
        return
    own = Path(data.test_source) if data.test_source else None
    if own is None or not own.is_file() or own.read_bytes() != test.source.read_bytes():
        raise UserError(
            f"{entrant.asked.run}: reads {', '.join(data.columns)} beside the text, which its "
            f"config names for its own test set only, and {test.name} is another; leave it out"
        )


def few(problems: list[str]) -> str:
    """The first problems in one line, and how many more there are."""
    more = f" (and {len(problems) - PROBLEMS} more)" if len(problems) > PROBLEMS else ""
    return "; ".join(problems[:PROBLEMS]) + more
