"""nmt-score: how likely a model finds given translations, N pairs in, N lines out."""

import argparse
import json
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from nmt import __version__
from nmt.cli.command import pause_gc, run
from nmt.cli.options import Parser, add_running, integer
from nmt.cli.output import check_files, open_output
from nmt.cli.streams import open_input, text_lines

if TYPE_CHECKING:
    from nmt.decode.score import GivenTranslation
    from nmt.modeldir import Trained

USAGE = "nmt-score MODEL SOURCE TARGET [-o OUTPUT] [OPTION ...]"
ABOUT = "Give the log-probability of each translation in TARGET, given its source in SOURCE."
MANUAL = """
Line N of SOURCE and line N of TARGET are a pair. Each pair gives one output line, in the same
order, empty lines included. Text is UTF-8. The output for each pair:
  (no option)      LOG_PROB TAB LENGTH
  --tokens         {"line": 1, "log_prob": ..., "pieces": ["gu@@", ..., "</s>"], "log_probs": [...]}
LOG_PROB is the natural logarithm of the probability of the whole translation given the source, in
float32. LENGTH is the number of its pieces. Both include the end of the sentence (</s>). The
perplexity is exp(-sum of LOG_PROB / sum of LENGTH); for the development text it is the figure that
training reports. A piece that is not in the vocabulary is <unk>.

A pair that is too long for a batch (--batch-tokens), or for the position table of an encoding, gets
an empty line (--tokens: null and two empty lists). All others are scored, and the exit code is 65.
With -o, lines are written to OUTPUT.part, which is renamed at the end; after an interruption the
same command continues there.
"""
BATCH = "tokens of a batch on the longer side, padding included (default: 4000)"
SOURCE, TARGET = "", "="  # names among what is read, which no column can have


def command(argv: list[str]) -> None:
    """Score; no file is written before the model is loaded."""
    options = parse_arguments(argv)
    files = {SOURCE: options.source, TARGET: options.target, **options.columns}
    check_files(options.output, [*files.values()])
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_input(path)) for name, path in files.items()}
        with pause_gc():  # torch takes seconds: --help and wrong arguments are answered before
            from tqdm import tqdm

            from nmt import modeldir
            from nmt.decode.models import adapt
            from nmt.decode.notes import Notes
            from nmt.decode.score import score_translations
            from nmt.system.device import pick, set_up
            from nmt.system.resources import keep_memory

        keep_memory()
        set_up(pick(options.device), threads=options.threads)
        trained = modeldir.load(options.model, options.device)
        trained = adapt(trained, trained.settings.decode)
        window = trained.settings.decode.window
        inputs = {name: text_lines(opened[name], path) for name, path in files.items()}
        identity = identify(options, trained)
        output = stack.enter_context(open_output(options.output, files, identity))
        notes, done = Notes(output.progress.notes), output.progress.lines
        output.skip_finished(inputs.values())
        scored = score_translations(
            trained,
            inputs[SOURCE],
            inputs[TARGET],
            {name: inputs[name] for name in options.columns},
            batch_tokens=options.batch_tokens,
            window=window,
            first=done + 1,
            notes=notes,
        )
        quiet = True if options.output is None and sys.stdout.isatty() else None  # unless a TTY
        progress = tqdm(scored, unit=" lines", disable=quiet, initial=done)
        for number, pair in enumerate(progress, done + 1):
            output.write(format_record(options, number, pair))
            if number % window == 0:
                output.advance(number, notes.counts)


def identify(options: argparse.Namespace, trained: "Trained") -> dict[str, object]:
    """Everything but the texts on which the output depends."""
    return {
        "model": trained.digest,
        "window": trained.settings.decode.window,
        "--tokens": options.tokens,
        "--batch-tokens": options.batch_tokens,
        "--device": next(trained.model.parameters()).device.type,
        "nmt": __version__,
        "command": "nmt-score",
    }


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Read the arguments; raises UserError, or SystemExit as argparse does."""
    parser = Parser("nmt-score", USAGE, ABOUT, MANUAL)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run of nmt-train, or a model directory")
    add("source", metavar="SOURCE", help="text, perhaps .gz or .zst; -: stdin")
    add("target", metavar="TARGET", help="its translations, likewise; -: stdin")
    add("-o", "--output", help="file to write (default: stdout)")
    add("--tokens", action="store_true", help="one JSON object per pair, with each piece's score")
    add("--batch-tokens", type=integer(1), default=4000, metavar="N", help=BATCH)
    add_running(parser)
    return parser.parse_args(argv)


def format_record(options: argparse.Namespace, number: int, pair: "GivenTranslation | None") -> str:
    """The output line of a pair, LF included; None: the pair was too long."""
    if options.tokens:
        plain = {
            "line": number,
            "log_prob": pair and round(pair.log_prob, 6),
            "pieces": pair.pieces if pair else [],
            "log_probs": [round(log_prob, 6) for log_prob in pair.log_probs] if pair else [],
        }
        return json.dumps(plain, ensure_ascii=False) + "\n"
    return f"{pair.log_prob:.6f}\t{pair.length}\n" if pair else "\n"


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
