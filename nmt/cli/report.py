"""nmt-report: tables, curves, translations and attention of finished runs, beside the paper's."""

import argparse
import logging
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli.parser import Parser
from nmt.cli.words import run
from nmt.errors import Exit, UserError
from nmt.experiments.processes import cores
from nmt.experiments.texts import BY_SENTENCE

if TYPE_CHECKING:
    from nmt.config import Settings
    from nmt.experiments.testsets import Group, TableAsked, TestAsked

log = logging.getLogger(__name__)

USAGE = """nmt-report [LABEL=]RUN [RUN ...] --test NAME=SRC,REF [--test ...] [OPTION ...]"""
ABOUT = """
Translates the test sets with finished runs of nmt-train (once: translations are kept in the run
directories), scores them by source length, and shows all there is to see as text, and with
--html as one page. Runs whose settings differ only in the seed are one system:

  nmt-report runs/toy/absolute-seed{1,2,3} runs/toy/relative-seed{1,2,3} \\
      --test newstest=test.de,test.en --bounds 25,50,75,100 --html report.html

A system is called LABEL, or as its first run, less -seedN. The first is the baseline of the
paired tests. --published sets the numbers of the paper's table beside those of the systems that
are called as there: 'relative 75=runs/wmt/relative-75-seed1'.
"""
NAMED = re.compile(r"(?!\.)[\w.+-]+")  # names of tests: they are names of files
SEEDED = re.compile(r"[-_.]?seed[-_]?\d+$")
METRICS = ("BLEU-moses", "TER-moses")  # of the paper; plain ones where Moses knows no words
LOOSE = (
    *("seed", "trainer.device", "trainer.threads", "trainer.log_every", "trainer.tensorboard"),
    *("trainer.keep_checkpoints", "trainer.gradient_checkpointing", "data.workers"),
    *("decode.batch_tokens", "decode.window"),
)  # what runs of one system may differ in, beside places; none changes what is learnt or found


class Named(NamedTuple):
    """One run of the command line."""

    label: str | None  # as it was given
    path: Path
    settings: "Settings"
    data: str  # fingerprint of what it was trained on


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read the words, group the runs, report."""
    given = understood(argv)
    from nmt.compare.buckets import parse_bounds
    from nmt.experiments import report as study
    from nmt.experiments import testsets as asked

    bounds = parse_bounds(given.bounds)
    words = [_split(word) for word in given.words]
    asked.check_finished([path for _, path in words])
    runs = [_named(label, path, given.device) for label, path in words]
    tests = [_test(word) for word in given.test]
    groups = grouped(runs)
    tests += _joined(tests, groups, given.joined) if given.joined else []
    if given.by_sentence:
        tests = asked.read_by_sentence(tests)
    tables, groups = _tables(given, tests, groups)
    study.report(
        given.title,
        shlex.join(["nmt-report", *argv]),
        [],
        groups,
        tests,
        tables,
        bounds,
        study.Wanted(given.html, given.json, given.tsv, given.attention, given.samples, given.jobs),
    )


def understood(argv: list[str]) -> argparse.Namespace:
    """Read the words; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-report",
        usage=USAGE,
        description=ABOUT,
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="RUN", help="[LABEL=]RUN, a directory of nmt-train")
    add(
        "--test",
        action="append",
        required=True,
        metavar="NAME=SRC,REF",
        help="a test set; may be given several times",
    )
    add("--joined", type=Path, metavar="DIR", help="test on joined pairs of lines too, kept in DIR")
    add("--by-sentence", action="store_true", help=BY_SENTENCE)
    add("--bounds", default="25,50,75,100", help="last length of each bucket (default %(default)s)")
    add(
        "--metric",
        metavar="A,B",
        help="in the tables (default: BLEU-moses,TER-moses as in the paper)",
    )
    add("--published", metavar="TABLE", help="table1 ... table4, perhaps several: table2,table3")
    add("--html", type=Path, metavar="FILE", help="write the whole report as one page")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add("--tsv", type=Path, metavar="FILE", help="write the scores, one a line")
    add(
        "--attention",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="watch where models look (default: yes)",
    )
    add("--samples", type=int, default=1000, metavar="N", help="of the bootstrap (default 1000)")
    add("--jobs", type=int, default=cores(), metavar="N", help="processes (default: one per core)")
    add("--device", default="auto", help="cpu, cuda, cuda:1, or auto: a GPU if there is one")
    add("--title", default="Translation by source length", help="of the report")
    given = parser.parse_intermixed_args(argv)
    if given.jobs < 1 or given.samples < 40:
        raise UserError("--jobs must be at least 1, and --samples at least 40")
    return given


def _split(word: str) -> tuple[str | None, Path]:
    """Read [LABEL=]RUN; a path that exists as it stands has no label."""
    label, equals, rest = word.partition("=")
    if not equals or Path(word).exists():
        label, rest = "", word
    elif not label.strip() or not rest:
        raise UserError(f"{word}: expected LABEL=RUN")
    path = Path(rest)
    if not path.is_dir():
        what = "not a directory" if path.exists() else "no such directory"
        raise UserError(f"{path}: {what}; name a run of nmt-train", Exit.NO_INPUT)
    return label.strip() or None, path


def _named(label: str | None, path: Path, device: str) -> Named:
    """Read what a finished run was trained with, and on."""
    from nmt import manifest, modeldir
    from nmt.config import thaw
    from nmt.training.directory import CONFIG

    where = path / CONFIG
    if not where.is_file():
        raise UserError(f"{where}: missing; name a directory of nmt-train", Exit.DATA)
    try:
        settings = thaw(manifest.parse(where.read_bytes(), where))
    except UserError as error:
        said = str(error)
        raise UserError(said if str(where) in said else f"{where}: {said}", Exit.DATA) from None
    trainer = replace(settings.trainer, device=device)  # where to compute now, not where it was
    facts = modeldir.reading(path, lambda found: manifest.Sealed(found).json("facts.json"))
    return Named(label, path, replace(settings, trainer=trainer), str(facts["fingerprint"]))


def grouped(runs: Sequence[Named]) -> list["Group"]:
    """Runs of one config are a system; a label starts or names one.

    Raises UserError for a run or seed that comes twice, for runs of one label that are of several
    configs, and for systems that would have the same name.
    """
    from nmt.experiments.run import Entrant
    from nmt.experiments.testsets import Group
    from nmt.overrides.compose import Experiment

    found: list[list[Named]] = []
    for one in runs:
        own = next((g for g in found if _belongs(one, g)), None)
        if own is None:
            found.append([one])
            continue
        if twice := next((each for each in own if each.settings.seed == one.settings.seed), None):
            raise UserError(
                f"{one.path}: the same config and seed as {twice.path}; name one of them, "
                "or give each a LABEL="
            )
        own.append(one)
    groups = []
    for members in found:
        members.sort(key=lambda each: each.settings.seed)
        label = next((each.label for each in members if each.label), None)
        entrants = [
            Entrant(each.path.resolve().name, [], Experiment(each.settings, each.path))
            for each in members
        ]
        groups.append(Group(label or SEEDED.sub("", entrants[0].name), entrants, None))
    return groups


def _belongs(one: Named, group: Sequence[Named]) -> bool:
    """Whether a run is of the group's config; raises UserError if only its label says so."""
    same = _essence(one) == _essence(group[0])
    label = next((each.label for each in group if each.label), None)
    if one.label is None:
        return same
    if one.label == label and not same:
        changed = _difference(group[0], one)
        raise UserError(
            f"{one.label}: {group[0].path} and {one.path} are of two configs ({changed}); "
            "give each its own LABEL="
        )
    return one.label == label


def _essence(run: Named) -> dict[str, Any]:
    """All that a system's runs have in common, by dotted key."""
    from nmt.config import freeze, is_path

    found: dict[str, Any] = {"order": list(run.settings.encoding), "corpus": run.data}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        elif prefix not in LOOSE and not is_path(prefix):
            found[prefix] = value

    add("", freeze(run.settings))
    return found


def _difference(one: Named, other: Named) -> str:
    """The first key in which two configs differ."""
    before, after = _essence(one), _essence(other)
    key = next(k for k in sorted({*before, *after}) if before.get(k) != after.get(k))
    return f"{key}: {before.get(key)} and {after.get(key)}"


def _test(word: str) -> "TestAsked":
    """Read NAME=SRC,REF."""
    from nmt.experiments.testsets import TestAsked

    name, equals, rest = word.partition("=")
    files = rest.split(",")
    if not equals or not NAMED.fullmatch(name) or len(files) != 2 or not all(files):
        raise UserError(f"--test {word}: expected NAME=SRC,REF, the name fit for a file name")
    source, reference = map(Path, files)
    return TestAsked(name, f"{source.name} and {reference.name}", source, reference)


def _joined(
    tests: Sequence["TestAsked"], groups: Sequence["Group"], directory: Path
) -> list["TestAsked"]:
    """Make the test sets of joined pairs of lines."""
    from nmt.data import joined
    from nmt.experiments.testsets import TestAsked, sides

    data = groups[0].entrants[0].asked.settings.data
    made = []
    for test in tests:
        pairs = joined.join(*sides(test))
        name = f"{test.name}-joined"
        about = joined.described([test.source, test.reference], 2)
        languages = data.source_language, data.target_language
        source, reference = joined.write(directory, name, *languages, pairs, about)
        made.append(TestAsked(name, f"consecutive pairs of {test.name}, joined", source, reference))
    return made


def _tables(
    given: argparse.Namespace, tests: Sequence["TestAsked"], groups: list["Group"]
) -> tuple[list["TableAsked"], list["Group"]]:
    """A table for each test, that of the paper where it is asked for; the groups with its names."""
    from nmt.compare import published
    from nmt.compare.scores import UNSPACED, parse_names
    from nmt.experiments.testsets import MOSES, TableAsked

    metrics = parse_names(given.metric)
    if metrics is None:
        language = groups[0].entrants[0].asked.settings.data.target_language
        metrics = [*METRICS]
        if language in UNSPACED:
            metrics = [name.removesuffix(MOSES) for name in metrics]
            log.warning("Moses does not segment %s: the tables show BLEU and TER", language)
    every = list(range(len(groups)))
    papers = [_paper(word, tests) for word in (given.published or "").split(",") if word]
    tables = []
    for test in tests:
        own = [paper for paper in papers if published.test_of(paper) == test.name]
        for paper in own:
            caption = f"{test.about}; beside the paper's"
            buckets = len(published.pairs(paper)) > 1
            tables.append(TableAsked(paper, caption, test.name, every, metrics, True, buckets))
        if not own:
            tables.append(TableAsked(test.name, test.about, test.name, every, metrics, False, True))
    if papers:
        known = {system for paper in papers for system in published.systems(paper)}
        groups = [g._replace(published=g.label if g.label in known else None) for g in groups]
        if not any(group.published for group in groups):
            raise UserError(
                f"--published {given.published}: no system is called as one of the paper's; "
                f"give LABEL=RUN with one of {', '.join(sorted(known))}"
            )
    return tables, groups


def _paper(word: str, tests: Sequence["TestAsked"]) -> str:
    """The paper's table that a word like table2 means, whose test must be there."""
    from nmt.compare import published

    number = re.fullmatch(r"table *(\d+)", word.strip().lower())
    name = f"Table {number[1]}" if number else word
    known = [table for table in published.tables() if re.match(rf"{re.escape(name)}(,|$)", table)]
    if not known:
        raise UserError(f"--published {word}: choose from table1, table2, table3, table4")
    names = [test.name for test in tests]
    found = next((table for table in known if published.test_of(table) in names), None)
    if found is None:
        wanted = " or ".join(published.test_of(table) for table in known)
        raise UserError(f"--published {word}: of the test {wanted}; add --test {wanted}=SRC,REF")
    return found


if __name__ == "__main__":
    sys.exit(main())
