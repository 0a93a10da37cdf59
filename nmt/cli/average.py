"""nmt-average: make one model of several checkpoints, by the mean of their weights."""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser, within
from nmt.errors import UserError
from nmt.experiments import outputs

USAGE = "nmt-average (RUN --last K | RUN --best K | MODEL MODEL ...) -o OUTPUT"
ABOUT = """
Make a model directory whose weights are the mean of those of several checkpoints (Vaswani et al.
2017, section 6.1): the K newest ones of a run, its K best ones by dev perplexity, or the models
that are named. They must have one config, text and vocabulary; the mean is taken in float64.

A run keeps its newest checkpoints, as many as trainer.keep_checkpoints says, and its best one. So
train with trainer.keep_checkpoints=5 for --last 5. Fewer than K are refused.

facts.json in OUTPUT says what was averaged. It has no dev perplexity, for none was measured; that
is what nmt-score is for. Evaluate the mean before you use it: it may be worse than its best part.
"""


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read, take the mean, write."""
    options = understood(argv)
    from nmt import modeldir
    from nmt.training import average

    if options.last is not None:
        made = average.of_run(options.models[0], options.last, average.last)
    elif options.best is not None:
        made = average.of_run(options.models[0], options.best, average.best)
    else:
        made = average.of_models(options.models)
    modeldir.save(made, options.output)
    sys.stdout.write(f"{options.output}\n")


def understood(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser(prog="nmt-average", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="MODEL", help="run directory, or model directories")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=within(2), metavar="K", help="the K newest of a run")
    which.add_argument("--best", type=within(2), metavar="K", help="the K best of a run")
    add("-o", "--output", type=Path, required=True, help="directory to be made; must not exist")
    options = parser.parse_intermixed_args(argv)
    of_run = options.last is not None or options.best is not None
    if of_run and len(options.models) > 1:
        raise UserError(f"{options.models[1]}: --last and --best choose of one run; give one")
    if not of_run and len(options.models) < 2:
        raise UserError(
            f"{options.models[0]}: one model has no mean; add --last K or --best K for checkpoints "
            "of a run, or more models"
        )
    outputs.check_new(options.output)
    return options


if __name__ == "__main__":
    sys.exit(main())
