"""nmt-parity: does decoding with a cache equal the full pass, for every encoding?"""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser, once, within
from nmt.cli.streams import deliver
from nmt.config import KINDS
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.overrides.near import nearest
from nmt.overrides.options import Folders, beside, folders_of, options_of

USAGE = """nmt-parity [encoding=all | encoding=A,B,[C,D]] [model=OPTION] [KEY=VALUE ...]
                  [--pairs] [--tokens N] [--device DEVICE] [--json FILE]
                  [--config-dir DIR]"""
EPILOG = """
KEY is seed, model.KEY, or a key of the encodings (tau, encoding.NAME.KEY): nmt-train --help all.
Without model=OPTION the model is as small as can be: 2+2 layers of width 32, 2 heads. Parameters
are random and none stands at its initial value.

exit codes: 0 all within bounds, 70 a cell beyond its bound or not finite, 2 wrong arguments

  nmt-parity
  nmt-parity encoding=relative,[absolute,relative] tau=4 model.share_layers=true model.halting=true
  nmt-parity encoding=absolute,relative,rotary --pairs --json pairs.json
"""
READ = ("model", "encoding", "seed")  # the parts of a config that change something here


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Measure each encoding, print the matrix as it grows, name what failed."""
    options = understood(argv)
    outputs.check_places([options.json])
    searched = beside(options.config_dir)
    folders = folders_of(searched) or ()
    encodings, overrides = _sorted_out(options.overrides, folders)
    from nmt.device import pick
    from nmt.inspect import parity_report as report

    device = pick(options.device)
    overrides = [*searched, *report.sized(overrides)]
    proofs = report.prove(
        encodings,
        overrides,
        options.tokens,
        _print,
        pairs=options.pairs,
        folders=folders,
        device=device,
    )
    deliver(
        f"{report.closing(proofs)}\n",
        (
            options.json,
            outputs.of_text(lambda: report.as_json(proofs, overrides, options.tokens, device)),
        ),
    )
    if cells := sum(len(proof.failed) for proof in proofs):
        raise UserError(
            f"cells where decoding with a cache is not the full pass: {cells}; see the table",
            Exit.DIVERGED,
        )


def understood(argv: list[str]) -> argparse.Namespace:
    """Options and overrides; raises SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-parity",
        groups=("model",),
        usage=USAGE,
        description="Compare decoding with a cache, token by token, with one causal pass.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="encodings (default: all), sizes, seed")
    pairs = "each two of the encodings together; of all: one of each kind (hooks, positions)"
    add("--pairs", action="store_true", help=pairs)
    add("--tokens", type=within(8, 10_000), default=40, help="of the target (default %(default)s)")
    add("--device", default="cpu", metavar="DEVICE", help="cpu (default), cuda, cuda:1, auto")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    return parser.parse_intermixed_args(argv)


def _sorted_out(given: list[str], folders: Folders) -> tuple[list[str] | None, list[str]]:
    """The encodings (None: all), and the overrides for each of them.

    Raises UserError for an encoding that is not there, and for what has no effect.
    """
    from nmt.experiments.plan import choices

    once(given)
    encodings, overrides = ["all"], []
    for override in given:
        key, equals, value = override.partition("=")
        part = key.lstrip("+~").split(".")[0]
        if not equals:
            raise UserError(f"{override}: expected key=value; see --help")
        if key == "encoding":
            encodings = list(dict.fromkeys(choices(value)))
        elif part in {*KINDS, "experiment", "runs", "name", "hydra"} - set(READ):
            raise UserError(f"{override}: changes nothing here; give model, encoding or seed")
        else:
            overrides.append(override)
    known = options_of("encoding", folders)
    named = [name for name in encodings if name != "all"]
    for option in [part.strip() for name in named for part in name.strip("[]").split(",")]:
        if option not in known:
            raise UserError(f"encoding={option}: no such option{nearest(option, known)}")
    return None if "all" in encodings else encodings, overrides


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
