"""nmt-evaluate: score and compare runs, models and files of translations, by source length."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import figure
from nmt.cli.command import run
from nmt.cli.options import SAMPLES, Parser, add_translating, decode_overrides, integer
from nmt.cli.output import write_outputs
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, names_of_metrics
from nmt.evaluation.options import BOUNDS, SEED, TOKENIZERS, EvaluationOptions
from nmt.system import outputs

if TYPE_CHECKING:
    from nmt.evaluation.systems import System
    from nmt.evaluation.testsets import ParallelFiles

USAGE = """nmt-evaluate SYSTEM [SYSTEM ...] [OPTION ...] [decode.KEY=VALUE ...]

  nmt-evaluate runs/toy/absolute-seed{1,2,3} runs/toy/relative-seed{1,2,3} -o report.html
  nmt-evaluate mine=runs/toy/relative-seed1 baseline=out.txt --source test.de --reference test.en
  nmt-evaluate runs/compare/toy/* --test news=test.de,test.en --sort -o ranking.md"""
ABOUT = "Score and compare runs, models and files of translations, by source length.\n"
LISTED = "".join(
    f"  {name:12}{metric.title.format(tokenizer='by --tokenize', language='the target language')}\n"
    for name, metric in METRICS.items()
)
MANUAL = f"""
SYSTEM is [LABEL=]PATH: a run, checkpoint or model directory, which translates the test set, or a
file of translations. Runs whose settings differ only in the seed are one system. The first system
is the baseline that all later ones are tested against.

The test set is --source and --reference (several files by repeating both), or several by --test.
Without these it is that of the corpus that the runs were trained on. Line N of all files belongs
together; they may be .gz or .zst. With --join K, K consecutive lines of a file are read as one.
Translations are kept in the directory of a run, otherwise in data/translations, and used again for
the same model, text and search settings.

A bucket is a range of source lengths; its score is the corpus score of its pairs. The table goes to
stdout, messages to stderr. --metric takes, in any case (BLEU, chrF2 and TER are sacreBLEU's):
{LISTED}"""
PICTURES = figure.FORMATS
ENDINGS = (".html", ".json", ".tsv", ".md", ".txt", *PICTURES)


def command(argv: list[str]) -> None:
    """Evaluate, write, show."""
    typed = parse_arguments(argv)
    outputs.check_writable(typed.output, [typed.output_dir])
    from nmt.evaluation import text
    from nmt.evaluation.run import evaluate
    from nmt.evaluation.systems import read_systems

    values = {key: value for key, value in vars(typed).items() if key in EvaluationOptions._fields}
    options = EvaluationOptions(**values, command=shlex.join(["nmt-evaluate", *argv]))
    systems = read_systems(typed.systems)
    tests = tests_of(typed, systems)
    translations = name_translations(systems, tests, typed.output_dir) if typed.output_dir else []
    refuse_overwriting([*typed.output, *translations], systems, tests)
    report = evaluate(systems, tests, options)
    shown = (
        text.tsv(report)
        if typed.format == "tsv"
        else text.render(report, typed.sort, "github" if typed.format == "markdown" else "plain")
    )
    files = [(path, text.writer_of(path, report, typed.sort)) for path in typed.output]
    hypotheses = (lines for test in report.tests for runs in test.hypotheses for lines in runs)
    for path, lines in zip(translations, hypotheses, strict=bool(translations)):
        files.append((path, outputs.text_writer(partial("".join, [f"{x}\n" for x in lines]))))
    write_outputs(shown, *files)
    for path in [*typed.output, *filter(None, [typed.output_dir])]:
        sys.stderr.write(f"wrote {path}\n")


def tests_of(typed: argparse.Namespace, systems: "Sequence[System]") -> "list[ParallelFiles]":
    """The test sets that are named, or else the one of the runs' corpus."""
    from nmt.evaluation import testsets

    if typed.reference:
        return [testsets.single_test(typed.source, typed.reference, typed.join)]
    named = [testsets.parse_test(test, typed.join) for test in typed.tests]
    return named or [testsets.test_of_runs(systems, typed.join)]


def name_translations(
    systems: "Sequence[System]", tests: "Sequence[ParallelFiles]", directory: Path
) -> list[Path]:
    """A file for the translations of each test and run: LABEL.txt, seed and test if several."""
    labels = list[str]()
    for system in systems:
        seeds = [model.settings.seed for model in system.models]
        labels += [f"{system.label}-seed{n}" for n in seeds] if len(seeds) > 1 else [system.label]
    before = [f"{test.name}." for test in tests] if len(tests) > 1 else [""]
    return [directory / f"{test}{label}.txt" for test in before for label in labels]


def refuse_overwriting(
    written: Sequence[Path], systems: "Sequence[System]", tests: "Sequence[ParallelFiles]"
) -> None:
    """Raise UserError for an output that is an input, or written twice."""
    taken = {path.resolve() for test in tests for _, path in test.paths}
    taken |= {system.file.resolve() for system in systems if system.file}
    for path in written:
        if path.resolve() in taken:
            raise UserError(f"{path}: is read, or written twice; give another name or LABEL=PATH")
        taken.add(path.resolve())


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, under the names of the EvaluationOptions; raises UserError.

    Besides these: systems, tests, source, reference, join, sort, format and the outputs.
    """
    parser = Parser("nmt-evaluate", USAGE, ABOUT, MANUAL, search=True)
    _add_texts(parser)
    _add_scores(parser)
    _add_outputs(parser)
    add_translating(parser)
    typed = parser.parse_intermixed_args(argv)
    settings = [a for a in typed.arguments if a.startswith("decode.") and "=" in a]
    typed.systems = [a for a in typed.arguments if a not in settings]
    if not typed.systems:
        raise UserError("no system: name a model, or a file of translations")
    typed.decode = decode_overrides(settings)
    typed.columns = {name: Path(path) for name, path in typed.columns.items()}
    pairs = list(map(parse_scores, typed.scores))
    typed.scores = dict(pairs)
    if len(typed.scores) < len(pairs):
        raise UserError("--scores: one of them twice; give a file for each system and metric")
    if typed.source and not typed.reference:
        raise UserError(
            f"--source {typed.source[0]}: to score translations of it, add --reference REF; "
            "without references, nmt-diagnose tells what is lost"
        )
    for path in typed.output:
        if path.suffix.lower() not in ENDINGS:
            raise UserError(f"-o {path}: the name must end in {', '.join(ENDINGS)}")
        if path.suffix.lower() in PICTURES:
            figure.require_matplotlib(f"-o {path}")
    return typed


def parse_scores(argument: str) -> tuple[tuple[str, str], Path]:
    """Read NAME=SYSTEM:FILE; raises UserError for anything else."""
    name, _, rest = argument.partition("=")
    system, _, file = rest.rpartition(":")
    if not name.strip() or not system or not file:
        raise UserError(f"--scores {argument}: expected NAME=SYSTEM:FILE, as comet=mine:mine.comet")
    return (name.strip(), system), Path(file)


def parse_names(text: str) -> list[str]:
    """The type of an option that takes names, A,B."""
    return [name.strip() for name in text.split(",")]


def parse_lengths(text: str) -> list[int]:
    """The type of an option that takes numbers, N,N,..."""
    return list(map(int, text.split(",")))


def _add_texts(parser: Parser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "type": Path, "default": []}
    add("arguments", nargs="+", metavar="SYSTEM", help="[LABEL=]PATH of a model or of translations")
    add("--source", **several, metavar="SRC", help="source text, for models and source lengths")
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument("--reference", **several, metavar="REF", help="reference translations")
    what = "a test set with a name; may be given several times"
    several = {"action": "append", "default": [], "metavar": "NAME=SRC,REF"}
    tests.add_argument("--test", dest="tests", **several, help=what)
    add("--join", type=integer(1, 1000), default=1, metavar="K", help="K lines are read as one")


def _add_scores(parser: Parser) -> None:
    add = parser.add_argument
    buckets = ",".join(map(str, BOUNDS))
    what = "last length of each bucket (default %(default)s)"
    add("--bounds", type=parse_lengths, default=buckets, metavar="N,N,...", help=what)
    what = "the model whose pieces measure length (default: the first); reference: its length"
    add("--lengths", metavar="MODEL|reference", help=what)
    defaults = ", ".join(names_of_metrics(default=True))
    what = f"scores; the first is plotted and sorts (default: {defaults})"
    add("--metric", dest="metrics", type=parse_names, metavar="A,B", help=what)
    what = "a file with a number for each line, of any metric: COMET, MetricX; may be repeated"
    add("--scores", action="append", default=[], metavar="NAME=SYSTEM:FILE", help=what)
    add("--target-language", metavar="CODE", help="of the tokeniser (default: the model's, or en)")
    add("--tokenize", choices=TOKENIZERS, help="of BLEU (default: 13a; for zh, ja, ko their own)")
    add("--perplexity", action="store_true", help="add the perplexity of the references")
    what = "why text beyond the trained length is lost: by the end sign, position or content"
    add("--lost", action="store_true", help=what)
    share = "add the share of the source that is never attended to; as slow as translating"
    add("--attention", action="store_true", help=share)
    what = "bootstrap samples (default %(default)s)"
    add("--samples", type=SAMPLES, default=1000, metavar="N", help=what)
    what = "seed of the bootstrap (default %(default)s)"
    add("--seed", type=integer(0), default=SEED, metavar="N", help=what)


def _add_outputs(parser: Parser) -> None:
    add = parser.add_argument
    what = "tables: best beyond training first, else on the longest"
    add("--sort", action="store_true", help=what)
    forms = ("text", "markdown", "tsv")
    add("--format", choices=forms, default="text", help="of stdout (default %(default)s)")
    add(
        *("-o", "--output"),
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="write .html, .json (all that was measured), .tsv, .md, .txt, or draw the first "
        "metric of the first test: .png, .svg, .pdf; may be repeated",
    )
    add("--output-dir", type=Path, metavar="DIR", help="write all translations as LABEL.txt")


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
