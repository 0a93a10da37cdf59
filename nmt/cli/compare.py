"""nmt-compare: train every encoding at one budget, and rank them by source length."""

import argparse
import logging
import shlex
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import SAMPLES, TRAINING, Parser, add_jobs, once
from nmt.cli.streams import deliver
from nmt.errors import UserError
from nmt.experiments import outputs

log = logging.getLogger(__name__)

USAGE = """nmt-compare encoding=all|A,B,... [--runs DIR] [OPTION ...] [KEY=VALUE ...]"""
ABOUT = """
Trains one model per encoding, several at once, translates the test set with each, and ranks them
by the longest sources in one table. KEY=VALUE are overrides of nmt-train, the same for all:

  nmt-compare encoding=all experiment=compare --runs runs/all --table all.md --plot all.png
  nmt-compare encoding=relative,[absolute,relative],lstm experiment=compare

The same command again goes on where it stopped, and does nothing twice. A run that fails does not
stop the others: it is named below the table, and the exit code says so.
"""
ALL = "all"  # encoding=all


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Plan, train, translate, score, show; then say what failed."""
    options, encodings, overrides = understood(argv)
    from nmt.compare import heatmap, text
    from nmt.compare.buckets import parse_bounds
    from nmt.compare.ranking import EXACT
    from nmt.compare.scores import parse_names
    from nmt.compare.scoring import BLEU
    from nmt.experiments.comparison import compare
    from nmt.experiments.plan import failure, plan_encodings
    from nmt.experiments.report import ReportOptions

    metrics = parse_names(options.metric) or []
    if len(metrics) != 1:
        raise UserError(f"--metric {options.metric}: give one; --json has BLEU and exact as well")
    bounds = parse_bounds(options.bounds)
    how = ReportOptions(
        bounds,
        options.samples,
        options.jobs,
        attention=False,
        signs=False,
        metrics=list(dict.fromkeys([*metrics, BLEU, EXACT])),
        reference_words=options.lengths == "reference",
    )
    outputs.check_places([options.json, options.table], options.plot, [options.runs])
    lenient = f"encoding={ALL}" in options.overrides
    runs, left_out = plan_encodings(encodings, overrides, options.runs, lenient)
    if not runs:
        raise UserError(f"no encoding fits: {left_out[0].label}: {left_out[0].why}")
    for missing in left_out:
        log.warning("%s: left out: %s", missing.label, missing.why)
    ranking, failed = compare(runs, left_out, metrics[0], how, shlex.join(["nmt-compare", *argv]))
    if ranking is not None:
        deliver(
            text.ranking(ranking),
            (options.json, outputs.of_text(lambda: outputs.as_json(ranking.to_json()))),
            (options.table, outputs.of_text(lambda: text.markdown(ranking))),
            (options.plot, lambda path: heatmap.draw(ranking, path)),
        )
    if failed:
        raise failure(failed, len(runs), "encodings")


def understood(argv: list[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Options, the encodings to compare, and the overrides that all share.

    Raises UserError, or SystemExit as argparse does.
    """
    parser = Parser(prog="nmt-compare", usage=USAGE, description=ABOUT, groups=TRAINING)
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="encoding=..., and those of nmt-train")
    add(
        "--runs",
        type=Path,
        default=Path("runs/compare"),
        metavar="DIR",
        help="of the models (%(default)s)",
    )
    add_jobs(parser)
    add("--bounds", default="25,50,75", help="last length of each bucket (default %(default)s)")
    add(
        "--lengths",
        choices=("source", "reference"),
        default="source",
        help="whose lengths; default source",
    )
    add("--metric", default="BLEU", help="one of those of nmt-evaluate (default %(default)s)")
    add("--samples", type=SAMPLES, default=1000, help="of the bootstrap (default 1000)")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add("--table", type=Path, metavar="FILE", help="write the table as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw it: .png, .svg or .pdf")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    options = parser.parse_intermixed_args(argv)
    return options, *_encodings(options.overrides, options.config_dir)


def _encodings(arguments: list[str], config_dir: str | None) -> tuple[list[str], list[str]]:
    """The encodings to compare, and the overrides that all share."""
    from nmt.experiments.plan import choices
    from nmt.overrides.arguments import lines_of, parse
    from nmt.overrides.options import beside, folders_of, options_of

    overrides = lines_of(parse([*beside(config_dir), *arguments]))
    once(overrides)
    for argument in arguments:
        if argument.startswith(("runs=", "name=")):
            raise UserError(f"{argument}: each run has its own; use --runs DIR")
    named = [o.partition("=")[2] for o in overrides if o.startswith("encoding=")]
    if len(named) != 1 or not named[0]:
        raise UserError("encoding=: say once what to compare, encoding=all or encoding=A,B,C")
    rest = [override for override in overrides if not override.startswith("encoding=")]
    if named[0] != ALL:
        return choices(named[0]), rest
    return options_of("encoding", folders_of(rest) or ()), rest


if __name__ == "__main__":
    sys.exit(main())
