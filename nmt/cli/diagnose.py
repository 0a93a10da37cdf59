"""nmt-diagnose: what a model loses on lines longer than its training had, and what would help."""

import argparse
import sys
from functools import partial
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.options import SAMPLES, Parser, add_translating, decode_overrides
from nmt.cli.output import write_outputs
from nmt.errors import UserError
from nmt.evaluation.options import EvaluationOptions

USAGE = "nmt-diagnose MODEL TEXT [--reference REF] [OPTION ...] [decode.KEY=VALUE ...]"
ABOUT = """
Print one screen: how many lines of a text are longer than any in the model's training, how much of
them is lost, what other search settings recover on up to 64 of them, and the commands of these.

MODEL is a run, checkpoint or model directory. With the right translations (--reference), what is
lost is the share of their character 6-grams that the translations lack; without, it is told by
attention and length alone.
"""


def command(argv: list[str]) -> None:
    """Translate, compare, show."""
    typed = parse_arguments(argv)
    from nmt.evaluation.diagnose import diagnose, render
    from nmt.evaluation.systems import read_systems

    values = {key: value for key, value in vars(typed).items() if key in EvaluationOptions._fields}
    (system,) = read_systems([typed.model])
    diagnosis = diagnose(system, typed.text, typed.reference, EvaluationOptions(**values))
    write_outputs(render(diagnosis))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, under the names of the EvaluationOptions; raises UserError."""
    parser = Parser("nmt-diagnose", USAGE, ABOUT, search=True)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run, checkpoint or model directory")
    add("text", type=Path, metavar="TEXT", help="lines of the source language; may be .gz or .zst")
    add("settings", nargs="*", default=[], metavar="decode.KEY=VALUE", help="search settings")
    add("--reference", type=Path, metavar="REF", help="the right translations, line by line")
    add("--samples", type=SAMPLES, default=1000, help="bootstrap samples (default 1000)")
    add_translating(parser)
    typed = parser.parse_intermixed_args(argv)
    if typed.columns:
        raise UserError("--columns: a diagnosis is of models that read text alone")
    typed.decode = decode_overrides(typed.settings)
    return typed


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
