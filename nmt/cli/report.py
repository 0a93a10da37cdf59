"""nmt-report: tables, curves, translations and attention of finished runs, beside the paper's."""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.command import run
from nmt.cli.decoding import BY_SENTENCE
from nmt.cli.parser import SAMPLES, Parser, add_jobs
from nmt.cli.streams import deliver
from nmt.errors import Exit, UserError
from nmt.experiments import outputs

if TYPE_CHECKING:
    from nmt.experiments.testsets import ParallelFiles

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


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read the arguments, group the runs, report, write, show."""
    options = understood(argv)
    from nmt.compare import page, text
    from nmt.compare.buckets import parse_bounds
    from nmt.compare.scores import parse_names
    from nmt.experiments import testsets
    from nmt.experiments.paper import tables_of
    from nmt.experiments.report import ReportOptions, report
    from nmt.experiments.systems import grouped, read_finished

    bounds = parse_bounds(options.bounds)
    files = [options.html, options.json, options.tsv]
    outputs.check_places(files, directories=[options.joined])
    runs = read_finished([_run(argument) for argument in options.runs], options.device)
    tests = [_test(argument) for argument in options.test]
    systems = grouped(runs)
    data = systems[0].runs[0].settings.data
    if options.joined:
        languages = data.source_language, data.target_language
        tests += testsets.joined_pairs(tests, languages, options.joined)
    if options.by_sentence:
        tests = testsets.read_by_sentence(tests)
    papers = [paper for paper in (options.published or "").split(",") if paper]
    tables, systems = tables_of(tests, systems, parse_names(options.metric), papers)
    how = ReportOptions(bounds, options.samples, options.jobs, options.attention)
    command = shlex.join(["nmt-report", *argv])
    made = report(options.title, command, [], systems, tests, tables, how)
    deliver(
        text.tables(made),
        (options.json, outputs.of_text(lambda: outputs.as_json(made.to_json()))),
        (options.tsv, outputs.of_text(lambda: text.tsv(made))),
        (options.html, outputs.of_text(lambda: page.html(made))),
    )


def understood(argv: list[str]) -> argparse.Namespace:
    """Read the arguments; raises UserError, or SystemExit as argparse does."""
    parser = Parser(prog="nmt-report", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="[LABEL=]RUN, a directory of nmt-train")
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
        help="observe the attention of the models (default: yes)",
    )
    add("--samples", type=SAMPLES, default=1000, help="of the bootstrap (default 1000)")
    add_jobs(parser)
    add("--device", default="auto", help="cpu, cuda, cuda:1, or auto: a GPU if there is one")
    add("--title", default="Translation by source length", help="of the report")
    return parser.parse_intermixed_args(argv)


def _run(argument: str) -> tuple[str | None, Path]:
    """Read [LABEL=]RUN; a path that exists as it stands has no label."""
    label, equals, rest = argument.partition("=")
    if not equals or Path(argument).exists():
        label, rest = "", argument
    elif not label.strip() or not rest:
        raise UserError(f"{argument}: expected LABEL=RUN")
    path = Path(rest)
    if not path.is_dir():
        what = "not a directory" if path.exists() else "no such directory"
        raise UserError(f"{path}: {what}; name a run of nmt-train", Exit.NO_INPUT)
    return label.strip() or None, path


def _test(argument: str) -> "ParallelFiles":
    """Read NAME=SRC,REF."""
    from nmt.experiments.testsets import ParallelFiles

    name, equals, rest = argument.partition("=")
    files = rest.split(",")
    if not equals or not NAMED.fullmatch(name) or len(files) != 2 or not all(files):
        raise UserError(f"--test {argument}: expected NAME=SRC,REF, the name fit for a file name")
    source, reference = map(Path, files)
    return ParallelFiles(name, f"{source.name} and {reference.name}", source, reference)


if __name__ == "__main__":
    sys.exit(main())
