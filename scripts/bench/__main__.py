"""How fast training, decoding, preparation and start-up are on this machine, beside peers."""

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import Exit, UserError
from nmt.experiments.processes import terminable

if TYPE_CHECKING:
    from nmt.config import Settings
    from scripts.bench.places import Setup
    from scripts.bench.table import Part

log = logging.getLogger(__name__)

USAGE = "python -m scripts.bench [PART ...] [OPTION ...] [KEY=VALUE ...]"
ABOUT = """
Measures how fast this machine trains, translates, prepares and starts, beside other libraries.
Contestants are processes that take turns (A B C, A B C, ...), each with the same number of threads;
a figure is the median of its rounds, a ratio the median of the ratios of the same round.

From the root of the repository, `python -m scripts.bench` and

                            training, decoding, preparation and startup
  training --model base encoding=rotary
  training --rounds 9 --json training.json
  encodings                 a step of every encoding, over one without positions
  growth profile --out DIR  curves as SVG and PNG; what a step consists of
  --gpu                     the same on CUDA, in some minutes
  peers DIR                 install other libraries in environments below DIR ...
  --peers DIR               ... and measure those

KEY=VALUE are words of nmt-train: encoding=..., trainer.batch_tokens=..., model.dim=..."""
PARTS = ("training", "decoding", "preparation", "startup", "encodings", "growth", "profile")
DEFAULT = PARTS[:4]
PRECISIONS = ("float32", "bfloat16")


def main(argv: list[str] | None = None) -> int:
    """Measure what the arguments name; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Measure what the words name."""
    given = understood(argv)
    if given.install is not None:
        install(given.install)
        return
    from nmt.device import pick
    from scripts.bench import machine
    from scripts.bench.places import Setup

    device = str(pick(given.device or ("cuda" if given.gpu else "cpu")))
    told: dict[str, Any] = {"machine": machine.describe(device, given.threads), "parts": {}}
    sys.stdout.write(f"{machine.text(told['machine'])}\n")
    peers = None if given.peers == "none" else given.peers
    with terminable(), tempfile.TemporaryDirectory(prefix="nmt-bench-") as directory:
        setup = Setup(Path(directory), given.threads, device, given.rounds, given.quick, peers)
        for name in ("gpu",) if given.gpu else given.parts:
            for part in MEASURED[name](given, setup):
                sys.stdout.write(f"\n{part.text()}")
                sys.stdout.flush()
                told["parts"][part.name] = {"title": part.title, "notes": part.notes, **part.found}
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def install(directory: Path) -> None:
    """Make the peers' environments; UserError (69) if one of them cannot be had."""
    from scripts.bench import environments

    if missing := environments.install(directory):
        raise UserError(
            f"{directory}: without {', '.join(missing)}; the bench runs and says so",
            Exit.UNAVAILABLE,
        )
    sys.stdout.write(f"{directory}\n")


def understood(argv: list[str]) -> argparse.Namespace:
    """What the words ask for; UserError for words that do not fit."""
    parser = Parser(
        prog="python -m scripts.bench",
        usage=USAGE,
        description=ABOUT,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    from nmt.overrides.options import beside

    add = parser.add_argument
    add("words", nargs="*", help=argparse.SUPPRESS)
    add("--model", default="small", metavar="NAME", help="tiny, small, base, ... (small)")
    add("--rounds", type=int, default=5, help="rounds that count (5)")
    add("--threads", type=int, default=min(cores or 1, 2), help="of each contestant (2)")
    both = ",".join(PRECISIONS)
    add("--precision", default=both, metavar="A,B", help=f"of training ({both})")
    add("--encodings", metavar="A,B", help="of the part encodings (all)")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    add("--quick", action="store_true", help="tiny sizes: to see that all of it runs")
    add("--peers", default=sys.executable, metavar="DIR", help="see above; none: without peers")
    add("--gpu", action="store_true", help="sizes, compilation, lengths, decoding on a GPU")
    add("--device", metavar="DEVICE", help="cpu, cuda, cuda:1 (cpu; with --gpu: cuda)")
    add("--json", type=Path, metavar="FILE", help="write every round's figures")
    add("--out", type=Path, metavar="DIR", help="where pictures go (.)", default=Path())
    given = parser.parse_intermixed_args(argv)
    words = list(given.words)
    given.install = None
    if words[:1] == ["peers"]:
        if len(words) != 2:
            raise UserError("peers DIR: name the directory of the environments")
        given.install = Path(words.pop())
        return given
    own = [word for word in words if "=" in word]
    once(own)
    given.words = [*beside(given.config_dir), *own]
    given.parts = [word for word in words if "=" not in word] or list(DEFAULT)
    if unknown := [word for word in given.parts if word not in PARTS]:
        raise UserError(f"{unknown[0]}: no such part; there are {', '.join(PARTS)}")
    if given.gpu and any("=" not in word for word in words):
        raise UserError("--gpu: chooses the parts itself; name none")
    if unknown := [name for name in given.precision.split(",") if name not in PRECISIONS]:
        raise UserError(f"--precision {unknown[0]}: choose among {', '.join(PRECISIONS)}")
    if given.peers != "none" and not Path(given.peers).exists():
        raise UserError(
            f"--peers {given.peers}: no such directory; the argument peers {given.peers} makes it",
            Exit.NO_INPUT,
        )
    for option in ("rounds", "threads"):
        if getattr(given, option) < 1:
            raise UserError(f"--{option} {getattr(given, option)}: must be at least 1")
    return given


FIXED = (  # of every run that is measured
    *("data=toy", "trainer.tensorboard=false", "trainer.max_epochs=null"),
    *("trainer.max_steps=1000000000", "trainer.checkpoints_per_epoch=1"),
    "trainer.log_every=1000000000",  # a report would begin the peak of a GPU's memory anew
)
TINY = ("model.dim=16", "model.feedforward_dim=32", "model.heads=2", "trainer.batch_tokens=400")


def settings(given: argparse.Namespace, setup: "Setup", *words: str) -> "Settings":
    """What nmt-train would do with the words, for as many threads as all have."""
    from nmt import build
    from nmt.overrides.compose import experiment_of

    quick = TINY if setup.quick else ()
    own = [f"trainer.device={setup.device}"]
    if not any(word.startswith("model=") for word in (*given.words, *words)):
        own.append(f"model={given.model}")
    fixed = [*own, f"trainer.threads={setup.threads}", *FIXED, *quick]
    found = experiment_of([*fixed, *given.words, *words]).settings
    build.check(found)
    return found


def choices(
    given: argparse.Namespace, setup: "Setup", *others: str
) -> dict[tuple[str, str], "Settings"]:
    """The chosen encoding and others, in each number format."""
    chosen = {}
    for precision in given.precision.split(","):
        for words in ((), *((other,) for other in others)):
            found = settings(given, setup, f"trainer.precision={precision}", *words)
            chosen[" ".join(["nmt", *found.encoding]), precision] = found
    return chosen


def training(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Updates; beside the chosen encoding the one of distances."""
    from scripts.bench import training as measured

    return [measured.part(choices(given, setup, "encoding=relative"), setup)]


def decoding(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Beam search in every number format that the product has."""
    from scripts.bench import decoding as measured

    chosen: dict[tuple[str, str], Settings | str] = {}
    for precision in ("float32", "bfloat16", "int8"):
        words = () if precision == "float32" else (f"decode.precision={precision}",)
        chosen["nmt", precision] = attempt(given, setup, *measured.WORDS, *words)
    return [measured.part(chosen, setup)]


def preparation(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Text files to ids."""
    from scripts.bench import preparation as measured

    words = (*measured.WORDS, f"data.root={setup.directory}")
    return [measured.part(settings(given, setup, *words), setup)]


def startup(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Whole processes."""
    from scripts.bench import startup as measured

    return [measured.part(settings(given, setup, *measured.WORDS), setup)]


def encodings(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Every encoding over the one that nmt-train takes."""
    from nmt.overrides.options import folders_of, options_of
    from scripts.bench import encodings as measured

    plain = settings(given, setup)
    every = options_of("encoding", folders_of(given.words) or ())
    names = given.encodings.split(",") if given.encodings else every
    chosen = {name: attempt(given, setup, f"encoding={name}") for name in names}
    baseline = " ".join(plain.encoding) or "none"
    chosen.pop(baseline, None)
    return [measured.part((baseline, plain), chosen, setup)]


def profile(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """What a training step consists of."""
    from scripts.bench import profile as measured

    return [measured.part(choices(given, setup), setup)]


def growth(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """Curves."""
    from scripts.bench import growth as measured

    def make(*words: str) -> "Settings":
        return settings(given, setup, *words)

    return [measured.part(make(), make, setup, given.out)]


def gpu(given: argparse.Namespace, setup: "Setup") -> list["Part"]:
    """What --gpu measures."""
    from scripts.bench import gpu as measured

    return measured.part(lambda *words: attempt(given, setup, *words), setup)


def attempt(given: argparse.Namespace, setup: "Setup", *words: str) -> "Settings | str":
    """Settings, or why there are none: another one may still be measured."""
    try:
        return settings(given, setup, *words)
    except UserError as error:
        return str(error)


MEASURED: dict[str, Callable[[argparse.Namespace, "Setup"], list["Part"]]] = {
    "training": training,
    "decoding": decoding,
    "preparation": preparation,
    "startup": startup,
    "encodings": encodings,
    "growth": growth,
    "profile": profile,
    "gpu": gpu,
}


if __name__ == "__main__":
    sys.exit(main())
