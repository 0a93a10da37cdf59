"""nmt-export: write a trained model as another engine reads it, with proof."""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.cli.streams import opened_input, text_lines
from nmt.errors import Exit, UserError

USAGE = "nmt-export MODEL DIR --to ctranslate2 [--precision float32|int8|...] [--samples FILE]"
ABOUT = """
Write the model of a run or model directory as a directory that CTranslate2 reads (nmt[ct2]). DIR
holds model.bin, config.json and the vocabularies, as ctranslate2.Translator reads them, and besides
source.json and target.json, the segmenters of the model.

What CTranslate2 makes of it is compared with the model on the lines of FILE (or made-up ones), and
on longer ones than in training: log-probabilities in float32 (to 1e-4), greedy and beam search.
Where they differ, nothing is written; else what was found lies in DIR/certificate.json. For another
precision the certificate says besides how much it changes. An encoding that CTranslate2 cannot
express is refused, with the reason.
"""

PRECISIONS = (
    *("float32", "float16", "bfloat16", "int16"),
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
)  # of CTranslate2


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read, write, compare."""
    options = understood(argv)
    from nmt import modeldir
    from nmt.exchange import ctranslate2_export

    trained = modeldir.load(options.model)
    lines = None
    if options.samples is not None:
        with opened_input(options.samples) as stream:
            lines = [line.rstrip("\r\n") for line in text_lines(stream, options.samples)]
    ctranslate2_export.export(trained, options.directory, lines, options.precision)
    sys.stdout.write(f"{options.directory}\n")


def understood(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser(prog="nmt-export", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run or model directory")
    add("directory", type=Path, metavar="DIR", help="directory to be made; must not exist")
    add("--to", required=True, choices=("ctranslate2",), help="the engine")
    add("--precision", default="float32", choices=PRECISIONS, help="of the weights")
    add("--samples", metavar="FILE", help="lines of the source language to compare on")
    options = parser.parse_args(argv)
    if options.directory.exists():
        raise UserError(f"{options.directory}: exists; name another directory", Exit.CANT_CREATE)
    return options
