"""nmt-demo: the whole job on the embedded corpus, two encodings side by side by length."""

import os
import shlex
import sys
from pathlib import Path

from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import Exit, UserError

USAGE = """nmt-demo [--runs DIR] [--encodings A,B] [--config-dir DIR] [KEY=VALUE ...]"""
ABOUT = """
Trains one model per encoding on sentences of 4 to 50 words at the same budget, translates
sentences of up to 100, and compares the systems by length: a table on stdout, and beside the
models comparison.json and comparison.png. The same command again resumes.
"""
BOUNDS = "25,50,75"  # the training sentences end at 50


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train, compare, and say where everything lies."""
    parser = Parser(prog="nmt-demo", usage=USAGE, description=ABOUT)
    parser.add_argument("--runs", default="runs/demo", help="directory of the models")
    parser.add_argument("--encodings", default="absolute,relative", help="options, commas between")
    parser.add_argument("--config-dir", metavar="DIR", help="also look for options in DIR")
    parser.add_argument("words", nargs="*", help="further words for nmt-train")
    asked = parser.parse_args(argv)
    once(asked.words)
    runs = Path(asked.runs)

    from nmt.experiments.run import choices, plan, prepared, train_all
    from nmt.overrides.options import beside

    words = ["experiment=demo", *beside(asked.config_dir), *asked.words]
    entrants, _ = plan(choices(asked.encodings), words, runs)
    test, corpora = prepared(entrants)
    if failed := train_all(entrants, corpora, os.cpu_count() or 1):
        raise UserError(
            f"{runs / failed[0].label}: {failed[0].why}; see {failed[0].log}", Exit.DIVERGED
        )
    words = [f"{entrant.name}={entrant.asked.run}" for entrant in entrants]
    words += ["--source", str(test.source), "--reference", str(test.reference), "--bounds", BOUNDS]
    words += ["--json", str(runs / "comparison.json"), "--plot", str(runs / "comparison.png")]
    from nmt.cli.evaluate import command as evaluate

    sys.stderr.write(f"\n{shlex.join(['nmt-evaluate', *words])}\n\n")
    evaluate(words)
    sys.stderr.write(f"\nmodels, table and picture: {runs}\n")


if __name__ == "__main__":
    sys.exit(main())
