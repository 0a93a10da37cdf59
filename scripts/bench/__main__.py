"""Measures training, decoding and preparation on this machine, compared with peers."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
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
Measures how fast this machine trains, translates and prepares, compared with other toolkits.
Candidates are processes that take turns (A B C, A B C, ...), each with the same number of threads;
a figure is the median of its rounds, a ratio the median of the ratios of the same round.

From the root of the repository, `python -m scripts.bench` and

                            training, decoding and preparation
  training --model base encoding=rotary
  training --rounds 9 --json training.json
  --gpu                     correctness, sizes, decoding and lengths on CUDA, in eight minutes
  --gpu correctness         loss and gradients of all encodings, compared with the CPU's;
                            a part alone has all eight minutes
  peers DIR                 install other toolkits in environments below DIR ...
  --peers DIR               ... and measure those
  decoding --peer ctranslate2
                            one of them

With peers the bench takes minutes: the settings of each take turns first, and the fastest are
measured.

KEY=VALUE are arguments of nmt-train: encoding=..., trainer.batch_tokens=..., model.dim=..."""
PARTS = ("training", "decoding", "preparation")
GPU_PARTS = ("correctness", "sizes", "decoding", "lengths")
PRECISIONS = ("float32", "bfloat16")
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements"
PEERS = sorted(path.stem.rstrip("_") for path in REQUIREMENTS.glob("*.txt"))


def command(argv: list[str]) -> None:
    options = parse_arguments(argv)
    if options.install is None:
        measure(options)
        return
    from scripts.bench import toolkits

    toolkits.install(options.install)
    sys.stdout.write(f"{options.install}\n")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; `parts` to measure, `overrides` of nmt-train, or where to `install` peers."""
    parser = Parser("python -m scripts.bench", USAGE, ABOUT)
    add = parser.add_argument
    add("arguments", nargs="*", help=argparse.SUPPRESS)
    add("--model", default="small", metavar="NAME", help="tiny, small, base, ... (small)")
    add("--rounds", type=PROCESSES, default=5, help="rounds that count (5)")
    add("--threads", type=PROCESSES, default=min(cores(), 2), help="of each candidate (2)")
    both = f"of training ({','.join(PRECISIONS)})"
    precisions = names_among(PRECISIONS)
    add("--precision", type=precisions, default=[*PRECISIONS], metavar="A,B", help=both)
    add("--encodings", type=split, metavar="A,B", help="of correctness (all)")
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
    options.overrides = [word for word in options.arguments if "=" in word]
    every = GPU_PARTS if options.gpu else PARTS
    options.parts = words or list(every)
    for part in options.parts if options.install is None else ():
        if part not in every:
            parser.error(f"{part}: no such part; there are {', '.join(every)}")
    if options.peers is None:
        # on a GPU, the search for their fastest settings would take all the time
        options.peers = "none" if options.gpu else sys.executable
    return options


def split(text: str) -> list[str]:
    return text.split(",")


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
    from scripts.bench.session import Session

    device = str(pick(options.device or ("cuda" if options.gpu else "cpu")))
    with stop_by_error(), tempfile.TemporaryDirectory(prefix="nmt-bench-") as directory:
        session = Session(options, Path(directory), device)
        machine = session.describe_machine()
        cpu = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads"
        torch = f"torch {machine['versions']['torch']}"
        load = f"load {machine['load'][0]:.1f} before the bench"
        sys.stdout.write(f"{machine.get('gpu') or cpu}; {torch}; {load}\n")
        facts: dict[str, Any] = {"machine": machine, "parts": {}}
        for part in measure_parts(session):
            sys.stdout.write(f"\n{part.text()}")
            sys.stdout.flush()
            facts["parts"][part.name] = part.to_json()
            if options.json is not None:
                options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def measure_parts(session: "Session") -> Iterator["BenchPart"]:
    from scripts.bench import decoding, gpu, preparation, training

    if session.options.gpu:
        yield from gpu.measure_parts(session, session.options.parts)
        return
    parts: dict[str, Callable[[Session], BenchPart]] = {
        "training": training.measure,
        "decoding": decoding.measure,
        "preparation": preparation.measure,
    }
    for name in session.options.parts:
        yield parts[name](session)


main = partial(run, command)

if __name__ == "__main__":
    sys.exit(main())
