"""nmt-evaluate: score and compare runs, models and files of translations, by source length."""

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.command import run
from nmt.cli.decoding import add_translating, decode_overrides, search_settings_help
from nmt.cli.parser import PROCESSES, SAMPLES, Parser, integer
from nmt.cli.streams import write_outputs
from nmt.errors import UserError
from nmt.experiments import outputs
from nmt.experiments.options import BOUNDS, CACHE, SEED, TITLE, TOKENIZERS, EvaluationOptions
from nmt.machine.cpus import cores

if TYPE_CHECKING:
    from nmt.compare.report import Report
    from nmt.experiments.systems import System
    from nmt.experiments.testsets import ParallelFiles

USAGE = """nmt-evaluate SYSTEM [SYSTEM ...] [OPTION ...] [decode.KEY=VALUE ...]

  nmt-evaluate runs/toy/absolute-seed{1,2,3} runs/toy/relative-seed{1,2,3} --html report.html
  nmt-evaluate mine=runs/toy/relative-seed1 theirs=out.txt --source test.de --reference test.en
  nmt-evaluate runs/toy/absolute-seed1 --source test.de --diagnose
  nmt-evaluate runs/compare/toy/* --test news=test.de,test.en --rank --table ranking.md"""
EPILOG = """
SYSTEM is [LABEL=]PATH: a run, checkpoint or model directory, which translates the test set, or a
file of translations. [LABEL=]PATH,PATH,... is an ensemble. Runs whose settings differ only in the
seed are one system. The first system is the baseline that the others are tested against.

The test set is --source and --reference, or several by --test. Without these it is that of the
corpus that the runs were trained on. Line N of all files belongs together; they may be .gz or .zst.
Translations are kept in the directory of a run, otherwise in --cache, and used again for the same
model, text and search settings.

BLEU, chrF2 and TER are those of sacreBLEU; BLEU-moses is cased BLEU on tokenised text. --metric
also accepts TER-moses and exact, the percentage of lines equal to the reference (white space is
normalised, case counts). A bucket is a range of source lengths; its score is the corpus score of
its pairs. The table goes to stdout, messages to stderr.

Search settings; the default is what each model was trained with:
"""


def command(argv: list[str]) -> None:
    """Evaluate, write, show."""
    typed = parse_arguments(argv)
    if typed.quiet:
        logging.getLogger().setLevel(logging.WARNING)
    if typed.diagnose:
        _diagnose(typed)
        return
    files = [typed.json, typed.tsv, typed.html, typed.table]
    outputs.check_writable(files, typed.plot, [typed.output_dir])
    from nmt.compare import page, plot, text
    from nmt.compare.scores import EXACT
    from nmt.compare.scoring import BLEU
    from nmt.experiments.evaluate import evaluate
    from nmt.experiments.systems import systems_of

    options = _options(typed, command=shlex.join(["nmt-evaluate", *argv]))
    if typed.rank and options.metrics is None:
        options = options._replace(metrics=[BLEU, EXACT])
    systems = systems_of(typed.systems)
    tests = tests_of(typed, systems)
    places = places_of(systems, tests, typed.output_dir) if typed.output_dir else []
    report = evaluate(systems, tests, options)
    write_outputs(
        text.ranking(report) if typed.rank else text.render(report),
        *translations(report, places),
        (typed.json, outputs.text_writer(lambda: outputs.as_json(report.to_json()))),
        (typed.tsv, outputs.text_writer(lambda: text.tsv(report))),
        (typed.html, outputs.text_writer(lambda: page.html(report))),
        (typed.table, outputs.text_writer(lambda: text.markdown(report))),
        (typed.plot, lambda path: plot.draw(report, path)),
    )


def _diagnose(typed: argparse.Namespace) -> None:
    """Print what one model loses on the long lines of a text."""
    from nmt.compare.text.long_text import long_text
    from nmt.experiments.long_text import diagnose
    from nmt.experiments.systems import systems_of

    systems = systems_of(typed.systems)
    if len(systems) > 1:
        raise UserError(f"{systems[1].label}: --diagnose is of one model; name one")
    write_outputs(long_text(diagnose(systems[0], typed.source, typed.reference, _options(typed))))


def _options(typed: argparse.Namespace, **others: Any) -> EvaluationOptions:
    values = {key: value for key, value in vars(typed).items() if key in EvaluationOptions._fields}
    return EvaluationOptions(**values, **others)


def tests_of(typed: argparse.Namespace, systems: "Sequence[System]") -> "list[ParallelFiles]":
    """The test sets that are named, or that of the runs' own corpus."""
    from nmt.experiments import testsets

    if typed.reference:
        return [testsets.single_test(typed.source, typed.reference)]
    return [testsets.parse_test(test) for test in typed.tests] or [testsets.test_of_runs(systems)]


def places_of(
    systems: "Sequence[System]", tests: "Sequence[ParallelFiles]", directory: Path
) -> list[Path]:
    """The files that get all translations: LABEL.txt, with seed and test if several.

    By test, system and run. Raises UserError for two of one name.
    """
    labels = list[str]()
    for system in systems:
        seeds = [model.settings.seed for model in system.models]
        labels += [f"{system.label}-seed{n}" for n in seeds] if len(seeds) > 1 else [system.label]
    before = [f"{test.name}." for test in tests] if len(tests) > 1 else [""]
    names = [f"{test}{label}.txt" for test in before for label in labels]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--output-dir: {twice} would be written twice; give LABEL=PATH")
    return [directory / name for name in names]


def translations(report: "Report", places: Sequence[Path]) -> Iterator[tuple[Path, outputs.Writer]]:
    """What is written into the files of `places_of`, if any."""
    tests = [test for test in report.tests if test.side == report.tests[0].side]  # each text once
    columns = (
        [f"{line.hypotheses[s][i]}\n" for line in test.lines]
        for test in tests
        for s, runs in enumerate(test.lines[0].hypotheses)
        for i in range(len(runs))
    )
    for path, lines in zip(places, columns, strict=False):  # no place: not wanted
        yield path, outputs.text_writer(partial("".join, lines))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, under the names of the EvaluationOptions; raises UserError.

    Besides these: systems, tests, reference, source, rank and the outputs.
    """
    parser = Parser(
        prog="nmt-evaluate",
        usage=USAGE,
        description="Score and compare runs, models and files of translations, by source length.",
        epilog=EPILOG + search_settings_help(),
    )
    _add_texts(parser)
    _add_scores(parser)
    _add_outputs(parser)
    _add_computing(parser)
    typed = parser.parse_intermixed_args(argv)
    settings = [a for a in typed.arguments if a.startswith("decode.") and "=" in a]
    typed.systems = [a for a in typed.arguments if a not in settings]
    typed.decode = decode_overrides(settings)
    typed.columns = {name: Path(path) for name, path in typed.columns.items()}
    if not typed.systems:
        raise UserError("no system: name a model, or a file of translations")
    if typed.tests and (typed.reference or typed.source):
        raise UserError("--test: has source and reference itself; leave --source, --reference out")
    if typed.diagnose:
        _check_diagnose(typed)
    elif typed.source and not typed.reference:
        raise UserError(
            f"--source {typed.source}: to score translations of it, add --reference REF"
        )
    if typed.rank and not (typed.json or typed.tsv or typed.html):
        unseen = (name for name in ("lost", "perplexity", "attention") if getattr(typed, name))
        if name := next(unseen, None):
            raise UserError(f"--{name}: --rank does not show it; add --json, --tsv or --html FILE")
    from nmt.compare import buckets, scores  # numpy and sacrebleu take their time: not for --help

    typed.bounds, typed.metrics = (
        buckets.parse_bounds(typed.bounds),
        scores.parse_metrics(typed.metrics),
    )
    if typed.attention is None:
        typed.attention = typed.html is not None
    return typed


def _check_diagnose(typed: argparse.Namespace) -> None:
    """Raise UserError for what --diagnose needs, or has no use for."""
    if typed.source is None:
        raise UserError("--diagnose: of which text? add --source SRC, and --reference REF if known")
    outputs_ = ("json", "tsv", "html", "table", "plot", "output_dir")
    scores_ = ("rank", "perplexity", "columns", "lost", "lengths", "attention")
    texts = ("by_sentence", "tokenize", "target_language")
    others = {name: getattr(typed, name) for name in (*outputs_, *scores_, *texts)}
    others["metric"] = typed.metrics
    if unused := next((name for name, value in others.items() if value), None):
        option = f"--{unused.replace('_', '-')}"
        raise UserError(
            f"{option}: no effect with --diagnose, which prints one screen; leave it out"
        )


def _add_texts(parser: Parser) -> None:
    """Systems and test sets."""
    add = parser.add_argument
    add("arguments", nargs="+", metavar="SYSTEM", help="[LABEL=]PATH of a model or of translations")
    add("--reference", type=Path, metavar="REF", help="reference translations")
    add("--source", type=Path, metavar="SRC", help="source text, for models and source lengths")
    add(
        "--test",
        dest="tests",
        action="append",
        default=[],
        metavar="NAME=SRC,REF",
        help="a test set with a name; may be given several times",
    )


def _add_scores(parser: Parser) -> None:
    """Add the options of scores and buckets."""
    add = parser.add_argument
    add(
        "--bounds",
        default=",".join(map(str, BOUNDS)),
        metavar="N,N,...",
        help="last length of each bucket (default %(default)s)",
    )
    add(
        "--lengths",
        metavar="MODEL|reference|both",
        help="the model whose pieces measure length (default: the first); reference: by length of "
        "the reference; both: by that and by that of the source",
    )
    add(
        "--metric",
        dest="metrics",
        metavar="A,B",
        help="scores; the first is plotted and ranks (default: BLEU,BLEU-moses,chrF2,TER; "
        "with --rank: BLEU,exact)",
    )
    add("--target-language", metavar="CODE", help="of the tokeniser (default: the model's, or en)")
    add("--tokenize", choices=TOKENIZERS, help="of BLEU (default: 13a; for zh, ja, ko their own)")
    add("--perplexity", action="store_true", help="add the perplexity of the references")
    add(
        "--lost",
        action="store_true",
        help="why text beyond the trained length is lost: end sign, place or content; translates "
        "again, with lengths forced to those of the references",
    )
    add(
        "--attention",
        action=argparse.BooleanOptionalAction,
        help="what the models attend to; takes as long as translating (default: with --html)",
    )
    add("--samples", type=SAMPLES, default=1000, help="bootstrap samples (default 1000)")
    add("--seed", type=integer(0), default=SEED, help="seed of the bootstrap (default %(default)s)")


def _add_outputs(parser: Parser) -> None:
    """Add the options of outputs."""
    add = parser.add_argument
    add(
        "--diagnose",
        action="store_true",
        help="one screen: what a model loses on lines beyond its training, and what would help",
    )
    add("--rank", action="store_true", help="one table, best on the longest sources first")
    add("--title", default=TITLE, help="title of the report")
    add("--json", type=Path, metavar="FILE", help="write all numbers and lines")
    add("--tsv", type=Path, metavar="FILE", help="write the scores, one per line")
    add("--html", type=Path, metavar="FILE", help="write everything as one page")
    add("--table", type=Path, metavar="FILE", help="write the ranking as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw the first metric: .png, .svg or .pdf")
    add("--output-dir", type=Path, metavar="DIR", help="write all translations as LABEL.txt")


def _add_computing(parser: Parser) -> None:
    """Add the options of columns, devices and processes."""
    add = parser.add_argument
    add_translating(parser)
    counting = "processes that count matches (default: one per CPU thread)"
    add("--jobs", type=PROCESSES, default=cores(), metavar="N", help=counting)
    add(
        "--cache",
        type=Path,
        default=CACHE,
        metavar="DIR",
        help="where translations of models other than runs are kept (default %(default)s)",
    )
    add("--quiet", action="store_true", help="no progress, only warnings")


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
