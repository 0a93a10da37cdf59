"""nmt-export: write a model for another engine, and compare their translations."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import get_args

from nmt.cli.command import run
from nmt.cli.options import Parser, decode_overrides, name_pair
from nmt.cli.streams import sample_lines
from nmt.config.settings import Engine
from nmt.errors import UserError
from nmt.system import outputs

USAGE = "nmt-export MODEL DIR --to ENGINE [OPTION ...] [decode.KEY=VALUE ...]"
ABOUT = """
Write a model for another engine, and verify it.

--to ctranslate2 (extra ct2): a directory that ctranslate2.Translator reads, with the segmenters.
--to marian (extra hf): what MarianMTModel and MarianTokenizer of transformers read,
for models with model.norm=post, encoding=absolute and SentencePiece, including imported ones.
--to marian-npz (extra ct2): a directory of Marian itself, for models imported from one, or alike.
--to m2m100 (extra hf): a directory that M2M100ForConditionalGeneration and the tokenizer of
M2M100 or NLLB read, for models of that form: those imported.
--to argos (extra ct2): a package DIR.argosmodel for Argos Translate and LibreTranslate, for
models with segmenter=unigram and no tokenizer; best with one SentencePiece model for both sides.

README.md in the directory is a model card, with Python that translates where nmt is not installed.

The engine is compared with the model on the lines of --samples (or made-up ones), and on lines
longer than in training: log-probabilities in float32 (to 1e-4), greedy and beam search. If they
differ, nothing is written. Otherwise the measurements are printed and stored in
DIR/certificate.json, with the effect of --precision, and the number of lines that the Python on the
card translates as nmt-translate does. What the engine cannot express is rejected, with the reason.

decode.KEY=VALUE are search settings of the export, in the place of the model's.
"""

PRECISIONS = (
    *("float32", "float16", "bfloat16", "int16"),
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
)
QUANTISED = ("ctranslate2", "argos")  # engines whose exports have a precision


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
    add("--to", required=True, choices=get_args(Engine), help="the engine")
    add("--precision", default="float32", choices=PRECISIONS, help="of the weights")
    add("--samples", metavar="FILE", help="lines of the source language to compare on")
    add("--license", metavar="ID", help="for the card; an identifier of the hub, as apache-2.0")
    add("--names", type=name_pair, metavar="SOURCE,TARGET", help="of the languages, in a package")
    options = parser.parse_intermixed_args(argv)
    options.changes = decode_overrides(options.settings)
    if "precision" in options.changes:
        raise UserError("decode.precision: is that of the weights; choose it by --precision")
    outputs.check_new(options.directory)
    if options.to == "argos" and options.directory.suffix != ".argosmodel":
        raise UserError(f"{options.directory}: a package is a file; call it NAME.argosmodel")
    if options.to not in QUANTISED and options.precision != "float32":
        raise UserError(f"--precision {options.precision}: only CTranslate2 has it; leave it out")
    return options


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
