"""nmt-import: make a model directory of a model that another toolkit trained."""

import argparse
import logging
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from nmt.cli.command import run
from nmt.cli.options import Parser, integer, name_pair
from nmt.cli.streams import sample_lines
from nmt.system import outputs

if TYPE_CHECKING:
    from nmt.modeldir import Trained

log = logging.getLogger(__name__)

USAGE = "nmt-import SOURCE MODEL [--samples FILE] [--trained-length N] [--languages SOURCE,TARGET]"
ABOUT = """
Convert a model of another toolkit to a model directory, which nmt-translate, nmt-evaluate and
trainer.init_from read. SOURCE is a directory of one of these kinds, or a file; for a model of the
Hugging Face hub, first run hf download OWNER/NAME --local-dir NAME:

- a Marian model as Hugging Face stores it (OPUS-MT; extra hf), with its two .spm;
- a Marian model as Marian stores it (.npz), with its vocabulary and decoder.yml;
- an M2M100 or NLLB model as Hugging Face stores it (extra hf); what it translates is --languages,
  as deu_Latn,eng_Latn, until decode.source_language=L or decode.target_language=L say otherwise;
- a CTranslate2 model with sinusoids or Shaw's relative positions, as the converters of OpenNMT-py,
  OpenNMT-tf, Eole, fairseq and Marian write it, and its segmenters: source.spm and target.spm of
  SentencePiece, or source.json and target.json of nmt-export; what nmt-export wrote keeps its
  languages, search settings and trained length;
- a package of Argos Translate (a file: .argosmodel).

By transformers, or ctranslate2 if installed (extra ct2), the new model is compared with the
original: pieces, log-probabilities (to 1e-4), greedy and beam search, on the lines of --samples or
on made-up ones, and on lines longer than in training. If anything differs, nothing is written.
Otherwise the measurements are in MODEL/certificate.json.

The other formats do not record how long the training lines were: --trained-length N states it, in
pieces. Without it the trained length is unknown in reports, too.

For models with several target languages, the first word of a line names the language:
`>>fra<< Hello.`
"""


def command(argv: list[str]) -> None:
    """Read, compare, write."""
    options = parse_arguments(argv)
    from nmt import modeldir
    from nmt.exchange import importing
    from nmt.exchange.interface import CERTIFICATE
    from nmt.system import manifest

    lines = sample_lines(options.samples)
    importing.check(options.source)
    log.info("reading %s", options.source)
    with TemporaryDirectory() as work:
        directory = importing.unpack(options.source, Path(work) / "model")
        imported = importing.read(directory, options.trained_length, options.languages)
        log_model(imported.trained)
        if imported.trained.facts["longest_source"] is None:
            log.warning(
                "no file of %s states how long the lines in training were; only with "
                "--trained-length N, in pieces, reports mark longer ones",
                options.source,
            )
        certificate = importing.certify(imported, lines)
    log.info("writing %s", options.model)
    modeldir.save(imported.trained, options.model, {CERTIFICATE: manifest.dump(certificate)})
    sys.stdout.write(f"{options.model}\n")


def log_model(trained: "Trained") -> None:
    """Log the size of what was read."""
    shape = trained.settings.model
    log.info(
        "%d+%d layers of %d, %s parameters, %s and %s pieces",
        shape.encoder_layers, shape.decoder_layers, shape.dim,
        f"{sum(p.numel() for p in trained.model.parameters()):,}",
        *(f"{len(side.vocabulary):,}" for side in (trained.source, trained.target)),
    )  # fmt: skip


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser("nmt-import", USAGE, ABOUT)
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE", help="directory or file of another model")
    add("model", type=Path, metavar="MODEL", help="directory to be made; must not exist")
    add("--samples", metavar="FILE", help="lines of the source language to compare on")
    add(
        "--trained-length",
        type=integer(1),
        metavar="N",
        help="pieces of the longest source in training; default: what nmt-export wrote, or unknown",
    )
    add(
        "--languages",
        type=name_pair,
        metavar="SOURCE,TARGET",
        help="of a model of many languages; default: those of its tokenizer",
    )
    options = parser.parse_args(argv)
    outputs.check_new(options.model)
    return options


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
