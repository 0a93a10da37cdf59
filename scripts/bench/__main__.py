"""How fast training, decoding, preparation and start-up are on this machine, beside peers."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.errors import Exit, UserError
from nmt.processes import stop_on_signals
from nmt.system.resources import cores

if TYPE_CHECKING:
    from scripts.bench.session import Session
    from scripts.bench.table import BenchPart

USAGE = "python -m scripts.bench [PART ...] [OPTION ...] [KEY=VALUE ...]"
ABOUT = """
Measures how fast this machine trains, translates, prepares and starts, beside other libraries.
Candidates are processes that take turns (A B C, A B C, ...), each with the same number of threads;
a figure is the median of its rounds, a ratio the median of the ratios of the same round.

From the root of the repository, `python -m scripts.bench` and

                            training, decoding, preparation and startup
  training --model base encoding=rotary
  training --rounds 9 --json training.json
  encodings                 a step of every encoding, over one without positions
  correctness               decoding and gradients of every encoding, beside the CPU's
  --gpu                     correctness, sizes, decoding and lengths on CUDA, in eight minutes
  --gpu correctness         one of these by itself, which then has all eight minutes
  peers DIR                 install other libraries in environments below DIR ...
  --peers DIR               ... and measure those
  decoding --peer ctranslate2 --steady
                            one of them, without starts of whole processes

Decoding beside three peers takes more than ten minutes on two cores: each peer's set-ups take turns
first, for the fastest to be measured, in running processes and in whole ones.

KEY=VALUE are arguments of nmt-train: encoding=..., trainer.batch_tokens=..., model.dim=..."""
DEFAULT = ("training", "decoding", "preparation", "startup")
PARTS = (*DEFAULT, "encodings", "correctness")
GPU_PARTS = ("correctness", "sizes", "decoding", "lengths")
PRECISIONS = ("float32", "bfloat16")


def main(argv: list[str] | None = None) -> int:
    """Measure what the arguments name; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Measure what the arguments name, or install peers."""
    options = understood(argv)
    if options.install is None:
        measure(options)
        return
    from scripts.bench import environments

    environments.install(options.install)
    sys.stdout.write(f"{options.install}\n")


def measure(options: argparse.Namespace) -> None:
    """Print the table of each part as soon as it is measured, and write those so far as JSON."""
    from nmt.system.device import pick
    from scripts.bench import machine
    from scripts.bench.session import Session

    device = str(pick(options.device or ("cuda" if options.gpu else "cpu")))
    facts: dict[str, Any] = {"machine": machine.describe(device, options.threads), "parts": {}}
    sys.stdout.write(f"{machine.text(facts['machine'])}\n")
    with stop_on_signals(), tempfile.TemporaryDirectory(prefix="nmt-bench-") as directory:
        session = Session.of(options, Path(directory), device)
        for part in _measured(session, options):
            sys.stdout.write(f"\n{part.text()}")
            sys.stdout.flush()
            facts["parts"][part.name] = part.to_json()
            if options.json is not None:
                options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _measured(session: "Session", options: argparse.Namespace) -> Iterator["BenchPart"]:
    """Each part as soon as it is there."""
    if options.gpu:
        from scripts.bench import gpu

        yield from gpu.parts(session, options.parts)
        return
    for name in options.parts:
        yield from import_module(f"scripts.bench.{name}").parts(session)


def understood(argv: list[str]) -> argparse.Namespace:
    """What the arguments ask for; UserError for those that do not fit."""
    from nmt.config.catalog import config_dir_override

    options = parser().parse_intermixed_args(argv)
    arguments = list(options.arguments)
    options.install = None
    if arguments[:1] == ["peers"]:
        if len(arguments) != 2:
            raise UserError("peers DIR: name the directory of the environments")
        options.install = Path(arguments[1])
        return options
    overrides = [word for word in arguments if "=" in word]
    named = [word for word in arguments if "=" not in word]
    options.overrides = [*config_dir_override(options.config_dir), *overrides]
    known = GPU_PARTS if options.gpu else PARTS
    options.parts = named or list(GPU_PARTS if options.gpu else DEFAULT)
    if unknown := [name for name in named if name not in known]:
        where = " of --gpu" if options.gpu else ""
        raise UserError(f"{unknown[0]}: no such part{where}; there are {', '.join(known)}")
    if unknown := [name for name in options.precision.split(",") if name not in PRECISIONS]:
        raise UserError(f"--precision {unknown[0]}: choose among {', '.join(PRECISIONS)}")
    if options.peers is None:  # on a GPU, to look for their fastest set-ups would take all the time
        options.peers = "none" if options.gpu else sys.executable
    if options.peers != "none" and not Path(options.peers).exists():
        raise UserError(
            f"--peers {options.peers}: no such directory; the argument peers {options.peers} "
            "makes it",
            Exit.NO_INPUT,
        )
    options.peer = None if options.peer is None else options.peer.split(",")
    if unknown := [name for name in options.peer or () if name not in names_of_peers()]:
        raise UserError(f"--peer {unknown[0]}: choose among {', '.join(names_of_peers())}")
    for name in ("rounds", "threads"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: must be at least 1")
    return options


def names_of_peers() -> list[str]:
    """The libraries that nmt is compared with."""
    requirements = Path(__file__).parent / "peers" / "requirements"
    return sorted(path.stem.rstrip("_") for path in requirements.glob("*.txt"))


def parser() -> Parser:
    """The options."""
    parser = Parser(prog="python -m scripts.bench", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("arguments", nargs="*", help=argparse.SUPPRESS)
    add("--model", default="small", metavar="NAME", help="tiny, small, base, ... (small)")
    add("--rounds", type=int, default=5, help="rounds that count (5)")
    add("--threads", type=int, default=min(cores(), 2), help="of each candidate (2)")
    both = ",".join(PRECISIONS)
    add("--precision", default=both, metavar="A,B", help=f"of training ({both})")
    add("--encodings", metavar="A,B", help="of the part encodings (all)")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    add("--quick", action="store_true", help="tiny sizes: to see that all of it runs")
    add("--peers", metavar="DIR", help="see above; none: without peers, as with --gpu by default")
    add("--peer", metavar="A,B", help=f"which of the peers: {', '.join(names_of_peers())} (all)")
    add("--steady", action="store_true", help="decoding in running processes alone")
    add("--gpu", action="store_true", help="correctness, sizes, decoding, lengths on a GPU")
    add("--device", metavar="DEVICE", help="cpu, cuda, cuda:1 (cpu; with --gpu: cuda)")
    add("--json", type=Path, metavar="FILE", help="write every round's figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
