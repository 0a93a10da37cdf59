"""nmt-evaluate: score and compare models or files of translations, by source length."""

import argparse
import logging
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.decoding import BY_SENTENCE, KEYS, THREADS, WORKERS, change_of, described
from nmt.cli.parser import PROCESSES, SAMPLES, Parser, once, within
from nmt.cli.streams import deliver
from nmt.experiments import outputs
from nmt.experiments.columns import COLUMNS, columns_named

USAGE = """nmt-evaluate SYSTEM [SYSTEM ...] --reference REF [--source SRC] [OPTION ...]
                    [decode.KEY=VALUE ...]"""
EPILOG = """
Each SYSTEM is [LABEL=]PATH: a run directory or checkpoint, which translates SRC, or a file of
translations; [LABEL=]PATH,PATH,... are models that translate together. The first is the baseline,
against which the others are tested. Line N of all files belongs together; a line ends at LF; .gz
is read too.

BLEU, chrF2 and TER are sacreBLEU's; BLEU-moses is cased BLEU on tokenised text. Shown when asked
for: TER-moses, the same for TER, and exact, the percentage of lines equal to the reference (white
space normalised, case counts).
The score of a bucket is the corpus score of its pairs. The table goes to stdout, all else to
stderr.

How models search, unless as they were trained to:
"""
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # need no download


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Evaluate, write, show."""
    options = understood(argv)
    if options.quiet:
        logging.getLogger().setLevel(logging.WARNING)
    from nmt.compare import plot, text
    from nmt.compare.buckets import parse_bounds
    from nmt.compare.scores import parse_names
    from nmt.experiments.evaluate import (
        EvaluationOptions,
        check,
        evaluate,
        system_of,
        translations,
    )

    how = EvaluationOptions(
        bounds=parse_bounds(options.bounds),
        metrics=parse_names(options.metric),
        columns={name: Path(path) for name, path in columns_named(options.columns).items()},
        by_sentence=options.by_sentence,
        lengths=options.lengths,
        target_language=options.target_language,
        tokenize=options.tokenize,
        samples=options.samples,
        seed=options.seed,
        decode=options.decode,
        device=options.device,
        threads=options.threads,
        workers=options.workers,
        perplexity=options.perplexity,
        keep=options.output_dir,
        quiet=options.quiet,
    )
    systems = [system_of(argument) for argument in options.systems]
    check(systems, options.source, how)
    kept = how.kept(systems)
    outputs.check_places([options.json, *kept.values()], options.plot)
    report = evaluate(systems, options.reference, options.source, how)
    deliver(
        text.blocks(report),
        *translations(report, kept),
        (options.json, outputs.of_text(lambda: outputs.as_json(report.to_json()))),
        (options.plot, lambda path: plot.draw(report, path)),
    )


def understood(argv: list[str]) -> argparse.Namespace:
    """Options, with `systems` and `decode`; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-evaluate",
        groups=("decode",),
        usage=USAGE,
        description="Score and compare models or files of translations, by source length.",
        epilog=EPILOG + "\n".join(map(described, KEYS)),
    )
    add = parser.add_argument
    add("arguments", nargs="+", metavar="SYSTEM", help="[LABEL=]PATH of a model or of translations")
    add("--reference", required=True, type=Path, metavar="REF", help="the right translations")
    add("--source", type=Path, metavar="SRC", help="needed by models, and to count lengths")
    add("--columns", metavar=COLUMNS, help="integers beside SRC, for models that ask for them")
    add("--perplexity", action="store_true", help="of the references, too, by each model")
    add("--by-sentence", action="store_true", help=BY_SENTENCE)
    add("--bounds", default="25,50,75,100", help="last length of each bucket (default %(default)s)")
    add("--lengths", metavar="MODEL", help="counts source pieces (default: the first model)")
    add("--target-language", metavar="CODE", help="for tokenisers (default: the model's, or en)")
    add("--tokenize", choices=TOKENIZERS, help="of BLEU (default: 13a; zh, ja, ko: their own)")
    add(
        "--metric",
        metavar="A,B",
        help="which of these, first one drawn (default: BLEU,BLEU-moses,chrF2,TER)",
    )
    add("--samples", type=SAMPLES, default=1000, help="bootstrap samples (default 1000)")
    add("--seed", type=within(0), default=12345, help="of the bootstrap (default 12345)")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the first metric by length: .png, .svg or .pdf",
    )
    add("--output-dir", type=Path, metavar="DIR", help="keep models' translations as LABEL.txt")
    add("--device", default="auto", help="cpu, cuda, cuda:1, or auto: a GPU if there is one")
    add("--threads", type=PROCESSES, metavar="N", help=THREADS)
    add("--workers", type=PROCESSES, metavar="N", help=WORKERS)
    add("--quiet", action="store_true", help="no progress, only warnings")
    options = parser.parse_intermixed_args(argv)
    settings = [a for a in options.arguments if a.startswith("decode.") and "=" in a]
    once(settings)
    options.systems = [a for a in options.arguments if a not in settings]
    options.decode = dict(map(change_of, settings))
    return options


if __name__ == "__main__":
    sys.exit(main())
