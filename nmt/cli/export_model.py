"""nmt-export: write a trained model as another engine reads it, with proof."""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.cli.streams import opened_input, text_lines
from nmt.errors import Exit, UserError

USAGE = "nmt-export MODEL DIR --to ctranslate2|marian [--precision float32|int8|...] [OPTION ...]"
ABOUT = """
Write the model of a run or model directory as another engine reads it.

--to ctranslate2 (nmt[ct2]): model.bin, config.json and the vocabularies, as ctranslate2.Translator
reads them, and besides source.json and target.json, the segmenters of the model.
--to marian (nmt[oracles]): config.json, model.safetensors, vocab.json, source.spm and target.spm,
as MarianMTModel and MarianTokenizer of transformers read them; for models with model.norm=post,
encoding=absolute and SentencePiece, among them those that nmt-import made.

What the engine makes of it is compared with the model on the lines of FILE (or made-up ones), and
on longer ones than in training: log-probabilities or logits in float32 (to 1e-4), greedy and beam
search. Where they differ, nothing is written; else what was found lies in DIR/certificate.json. For
another precision the certificate says besides how much it changes. What the engine cannot express
is refused, with the reason.
"""

ENGINES = ("ctranslate2", "marian")
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
    from nmt.exchange import ctranslate2_export, marian_export

    trained = modeldir.load(options.model)
    lines = None
    if options.samples is not None:
        with opened_input(options.samples) as stream:
            lines = [line.rstrip("\r\n") for line in text_lines(stream, options.samples)]
    if options.to == "marian":
        marian_export.export(trained, options.directory, lines)
    else:
        ctranslate2_export.export(trained, options.directory, lines, options.precision)
    sys.stdout.write(f"{options.directory}\n")


def understood(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser(prog="nmt-export", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run or model directory")
    add("directory", type=Path, metavar="DIR", help="directory to be made; must not exist")
    add("--to", required=True, choices=ENGINES, help="the engine")
    add("--precision", default="float32", choices=PRECISIONS, help="of the weights")
    add("--samples", metavar="FILE", help="lines of the source language to compare on")
    options = parser.parse_args(argv)
    if options.directory.exists():
        raise UserError(f"{options.directory}: exists; name another directory", Exit.CANT_CREATE)
    if options.to == "marian" and options.precision != "float32":
        raise UserError(f"--precision {options.precision}: only CTranslate2 has it; leave it out")
    return options
