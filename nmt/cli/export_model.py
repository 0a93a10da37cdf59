"""nmt-export: write a model for another engine, and compare their translations."""

import argparse
import sys
from functools import partial
from pathlib import Path
from textwrap import fill

from nmt.cli.command import run
from nmt.cli.options import WIDTH, Parser, decode_overrides, name_pair
from nmt.cli.streams import sample_lines
from nmt.errors import UserError
from nmt.exchange.interface import ENGINES
from nmt.system import outputs

USAGE = "nmt-export MODEL DIR --to ENGINE [OPTION ...] [decode.KEY=VALUE ...]"
_LINES = (
    fill(f"--to {name} (extra {engine.library.extra}): {engine.writes}", WIDTH)
    for name, engine in ENGINES.items()
)
_ENGINES = "\n".join(_LINES)
ABOUT = f"""
Write a model for another engine, and verify it.

{_ENGINES}

README.md in the directory is a model card, with Python that translates where nmt is not installed.

The engine is compared with the model on the lines of --samples (or made-up ones), and on lines
longer than in training: log-probabilities in float32 (to 1e-4), greedy and beam search. If they
differ, nothing is written. Otherwise the measurements are printed and stored in
DIR/certificate.json, with the effect of --precision. What the engine cannot express is rejected,
with the reason.

decode.KEY=VALUE are search settings of the export, in the place of the model's.
"""

PRECISIONS = (
    *("float32", "float16", "bfloat16", "int16"),
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
)


def command(argv: list[str]) -> None:
    """Read, write, compare."""
    options = parse_arguments(argv)
    from nmt import build, modeldir
    from nmt.config.settings import with_decode
    from nmt.exchange.exporting import export

    trained = modeldir.load(options.model)
    settings = with_decode(trained.settings, options.changes)
    vocabularies = trained.source.vocabulary, trained.target.vocabulary
    build.set_languages(trained.model, settings.decode, *vocabularies)
    trained = trained._replace(settings=settings)
    export(
        trained,
        options.directory,
        sample_lines(options.samples),
        options.to,
        options.precision,
        Path(options.model).resolve().name,
        options.license,
        options.names,
    )
    sys.stdout.write(f"{options.directory}\n")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser("nmt-export", USAGE, ABOUT)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run or model directory")
    add("directory", type=Path, metavar="DIR", help="directory to be made; must not exist")
    what = "search settings, instead of the model's"
    add("settings", nargs="*", default=[], metavar="decode.KEY=VALUE", help=what)
    add("--to", required=True, choices=ENGINES, help="the engine")
    add("--precision", default="float32", choices=PRECISIONS, help="of the weights")
    add("--samples", metavar="FILE", help="lines of the source language to compare on")
    add("--license", metavar="ID", help="for the card; an identifier of the hub, as apache-2.0")
    add("--names", type=name_pair, metavar="SOURCE,TARGET", help="of the languages, in a package")
    options = parser.parse_intermixed_args(argv)
    options.changes = decode_overrides(options.settings)
    if "precision" in options.changes:
        raise UserError("decode.precision: is that of the weights; choose it by --precision")
    outputs.check_new(options.directory)
    engine, directory = ENGINES[options.to], options.directory
    if directory.suffix != engine.suffix and engine.suffix:
        raise UserError(f"{directory}: a package is a file; call it NAME{engine.suffix}")
    if options.precision != "float32" and not engine.has_precisions:
        names = ", ".join(name for name, engine in ENGINES.items() if engine.has_precisions)
        raise UserError(f"--precision {options.precision}: only for {names}; leave it out")
    return options


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
