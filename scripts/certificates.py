"""Each encoding that exports, trained for a moment, and what its certificate says.

    python -m scripts.certificates [--updates 60] [--only NAME,...] [--keep DIR]

Trains a small model of the embedded corpus with every option of `encoding`, and writes it for
CTranslate2, compared on test lines and on lines of up to 300 pieces. Prints a table in Markdown:
what was measured, or why the option is refused. Exit code 1 if anything else happens.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from nmt.cli.train import main as train
from nmt.data.toy import pairs
from nmt.errors import UserError
from nmt.exchange.exporting import export
from nmt.modeldir import load
from nmt.overrides.options import options_of
from nmt.storage import manifest

SMALL = [
    *("model.dim=32", "model.feedforward_dim=64", "model.heads=2", "model.encoder_layers=2"),
    *("model.decoder_layers=1", "segmenter.merges=200", "optim=adam_inverse_sqrt", "optim.lr=5e-3"),
    *("optim.warmup=20", "trainer.batch_tokens=1000", "trainer.checkpoints_per_epoch=1"),
    *("trainer.device=cpu", "trainer.threads=1", "trainer.tensorboard=false"),
    *("data.train_pairs=2000", "data.train_longest=12", "data.dev_pairs=20", "data.test_pairs=10"),
]
LINES = [source for source, _ in pairs(12, 4, 24, "certificates")]
HEAD = "| encoding | log-probabilities | pieces | longest | greedy | beam of 4 | ties |"


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    options = understood(argv)
    logging.disable(logging.INFO)
    names = options.only.split(",") if options.only else list(options_of("encoding"))
    with tempfile.TemporaryDirectory() as place:
        work = options.keep or Path(place)
        sys.stdout.write(f"{HEAD}\n|{'---|' * HEAD.count(' | ')}---|\n")
        refused: list[str] = []
        for name in names:
            for line in row(name, work, options.updates, refused):
                sys.stdout.write(line)
                sys.stdout.flush()
    sys.stdout.write("".join(["\n", *refused]))
    return 0


def row(name: str, work: Path, updates: int, refused: list[str]) -> Iterator[str]:
    """The line of an encoding in the table; where it is refused, none, but one in `refused`."""
    if not (work / name / "best").exists():
        arguments = [f"encoding={name}", f"runs={work}", f"data.cache={work / 'cache'}"]
        more = [*SMALL, f"trainer.max_steps={updates}", f"name={name}"]
        with redirect_stdout(sys.stderr):  # where the table does not go
            code = train([*arguments, *more])
        if code:
            raise RuntimeError(f"{name} was not trained")
    trained = load(work / name)
    with tempfile.TemporaryDirectory() as place:
        try:
            found = export(trained, Path(place) / "made", LINES)
        except UserError as error:
            if "cannot be exported" not in str(error):
                raise
            refused.append(f"- `{name}`: {error}\n")
            return
    (work / f"{name}.json").write_bytes(manifest.dump(found))
    yield f"| `{name}` | {' | '.join(cells(found))} |\n"


def cells(found: dict[str, Any]) -> list[str]:
    """What a certificate says, as the table shows it."""
    searches = [found[search] for search in ("greedy", "beam_4")]
    return [
        f"{found['log_probs']:.1e}",
        f"{found['pieces']:,}",
        str(found["longest_source"]),
        *(f"{counts['equal']} of {counts['compared']}" for counts in searches),
        str(sum(counts["ties"] for counts in searches)),
    ]


def understood(argv: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="scripts.certificates", description=__doc__)
    add = parser.add_argument
    add("--updates", type=int, default=60, help="of the training (default 60)")
    add("--only", help="options of `encoding`, by commas; default: all")
    add("--keep", type=Path, help="a directory for the runs, from which the command goes on")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
