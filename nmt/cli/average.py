"""nmt-average: make one model of several checkpoints, by the mean of their weights."""

import argparse
import sys
from functools import partial
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.options import Parser, integer
from nmt.errors import UserError
from nmt.system import outputs

USAGE = "nmt-average (RUN --last K | RUN --best K | MODEL MODEL ...) -o OUTPUT"
ABOUT = """
Average the weights of several checkpoints (Vaswani et al. 2017, section 6.1): the K newest of a
run, its K best checkpoints, or the models that you name. Their settings, text and
vocabulary must be the same. The mean is computed in float64.

A run keeps its trainer.keep_checkpoints newest checkpoints and its trainer.keep_best best ones, so
--last 5 needs a run trained with trainer.keep_checkpoints=5. Fewer than K are an error.

facts.json in OUTPUT lists what was averaged. Evaluate the mean before you use it: it may be worse
than the best of its checkpoints.
"""


def command(argv: list[str]) -> None:
    """Read, take the mean, write."""
    options = parse_arguments(argv)
    from nmt import modeldir
    from nmt.training import average

    if count := options.last or options.best:
        which = "last" if options.last else "best"
        mean = average.average_run(options.models[0], count, which)
    else:
        mean = average.average_models(options.models)
    modeldir.save(mean, options.output)
    sys.stdout.write(f"{options.output}\n")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser("nmt-average", USAGE, ABOUT)
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="MODEL", help="run directory, or model directories")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=integer(2), metavar="K", help="the K newest of a run")
    which.add_argument("--best", type=integer(2), metavar="K", help="the K best of a run")
    add("-o", "--output", type=Path, required=True, help="directory to be made; must not exist")
    options = parser.parse_intermixed_args(argv)
    of_run = options.last or options.best
    if of_run and len(options.models) > 1:
        raise UserError(f"{options.models[1]}: --last and --best choose of one run; give one")
    if not of_run and len(options.models) < 2:
        raise UserError(
            f"{options.models[0]}: one model has no mean; add --last K or --best K for checkpoints "
            "of a run, or more models"
        )
    outputs.check_new(options.output)
    return options


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
