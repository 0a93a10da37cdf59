"""How fast training, decoding and preparation are on this machine, beside peers."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.command import run
from nmt.cli.options import PROCESSES, Parser
from nmt.system.resources import cores
from nmt.training.signals import stop_by_error

if TYPE_CHECKING:
    from scripts.bench.session import Session
    from scripts.bench.table import BenchPart

USAGE = "python -m scripts.bench [PART ...] [OPTION ...] [KEY=VALUE ...]"
ABOUT = """
Measures how fast this machine trains, translates and prepares, beside other libraries.
Candidates are processes that take turns (A B C, A B C, ...), each with the same number of threads;
a figure is the median of its rounds, a ratio the median of the ratios of the same round.

From the root of the repository, `python -m scripts.bench` and

                            training, decoding and preparation
  training --model base encoding=rotary
  training --rounds 9 --json training.json
  correctness               decoding and gradients of every encoding, beside the CPU's
  --gpu                     correctness, sizes, decoding and lengths on CUDA, in eight minutes
  --gpu correctness         one of these by itself, which then has all eight minutes
  peers DIR                 install other libraries in environments below DIR ...
  --peers DIR               ... and measure those
  decoding --peer ctranslate2
                            one of them

Decoding beside three peers takes minutes on two cores: each peer's set-ups take turns first, for
the fastest to be measured.

KEY=VALUE are arguments of nmt-train: encoding=..., trainer.batch_tokens=..., model.dim=..."""
DEFAULT = ("training", "decoding", "preparation")
PARTS = (*DEFAULT, "correctness")
GPU_PARTS = ("correctness", "sizes", "decoding", "lengths")
PRECISIONS = ("float32", "bfloat16")
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements"
PEERS = sorted(path.stem.rstrip("_") for path in REQUIREMENTS.glob("*.txt"))


def command(argv: list[str]) -> None:
    options = parse_arguments(argv)
    if options.install is None:
        measure(options)
        return
    from scripts.bench import environments

    environments.install(options.install)
    sys.stdout.write(f"{options.install}\n")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; `parts` to measure, `overrides` of nmt-train, or where to `install` peers."""
    from nmt.config.catalog import config_dir_override

    parser = Parser("python -m scripts.bench", USAGE, ABOUT)
    add = parser.add_argument
    add("arguments", nargs="*", help=argparse.SUPPRESS)
    add("--model", default="small", metavar="NAME", help="tiny, small, base, ... (small)")
    add("--rounds", type=PROCESSES, default=5, help="rounds that count (5)")
    add("--threads", type=PROCESSES, default=min(cores(), 2), help="of each candidate (2)")
    both = f"of training ({','.join(PRECISIONS)})"
    precisions = names_among(PRECISIONS)
    add("--precision", type=precisions, default=[*PRECISIONS], metavar="A,B", help=both)
    add(
        "--encodings", type=lambda text: text.split(","), metavar="A,B", help="of correctness (all)"
    )
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    add("--quick", action="store_true", help="tiny sizes: to see that all of it runs")
    add("--peers", metavar="DIR", help="see above; none: without peers, as with --gpu by default")
    which = f"which of the peers: {', '.join(PEERS)} (all)"
    add("--peer", type=names_among(PEERS), metavar="A,B", help=which)
    add("--gpu", action="store_true", help="correctness, sizes, decoding, lengths on a GPU")
    add("--device", metavar="DEVICE", help="cpu, cuda, cuda:1 (cpu; with --gpu: cuda)")
    add("--json", type=Path, metavar="FILE", help="write every round's figures")
    options = parser.parse_intermixed_args(argv)
    options.install = None
    words = [word for word in options.arguments if "=" not in word]
    if words[:1] == ["peers"]:
        if len(words) != 2:
            parser.error("peers DIR: name the directory of the environments")
        options.install = Path(words[1])
    typed = [word for word in options.arguments if "=" in word]
    options.overrides = [*config_dir_override(options.config_dir), *typed]
    every = GPU_PARTS if options.gpu else PARTS
    options.parts = words or list(GPU_PARTS if options.gpu else DEFAULT)
    for part in options.parts if options.install is None else ():
        if part not in every:
            parser.error(f"{part}: no such part; there are {', '.join(every)}")
    if options.peers is None:  # on a GPU, to look for their fastest set-ups would take all the time
        options.peers = "none" if options.gpu else sys.executable
    return options


def names_among(allowed: tuple[str, ...] | list[str]) -> Callable[[str], list[str]]:

    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name}: choose among {', '.join(allowed)}")
        return text.split(",")

    return names


def measure(options: argparse.Namespace) -> None:
    """Print the table of each part as soon as it is measured, and write those so far as JSON."""
    from nmt.system.device import pick
    from scripts.bench import machine
    from scripts.bench.session import Session

    device = str(pick(options.device or ("cuda" if options.gpu else "cpu")))
    facts: dict[str, Any] = {"machine": machine.describe(device, options.threads), "parts": {}}
    sys.stdout.write(f"{machine.text(facts['machine'])}\n")
    with stop_by_error(), tempfile.TemporaryDirectory(prefix="nmt-bench-") as directory:
        for part in measure_parts(Session(options, Path(directory), device)):
            sys.stdout.write(f"\n{part.text()}")
            sys.stdout.flush()
            facts["parts"][part.name] = part.to_json()
            if options.json is not None:
                options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def measure_parts(session: "Session") -> Iterator["BenchPart"]:
    if session.options.gpu:
        from scripts.bench import gpu

        yield from gpu.parts(session, session.options.parts)
        return
    for name in session.options.parts:
        yield from import_module(f"scripts.bench.{name}").parts(session)


main = partial(run, command)

if __name__ == "__main__":
    sys.exit(main())
