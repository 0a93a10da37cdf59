"""Compare, compile and time the Triton kernels: see ABOUT."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.errors import Exit, UserError

USAGE = "python -m scripts.kernels compare|compile|time [OPTION ...]"
ABOUT = """
Says whether the Triton kernels compute what they stand in for, what they need of a GPU, and how
fast they are there. From the root of the repository:

  compare    outputs and gradients beside those of the plain formulas, over a grid of shapes; in
             Triton's interpreter, half an hour on one core; on a GPU, where each shape has to be
             compiled, 60 of them in bfloat16 (float32 is left to the formulas there)
  compile    registers, bytes that found none, shared memory; no GPU is needed
  time       forward and backward at 25 to 4,096 tokens, beside the plain formulas and attention
             without positions; at some lengths keys alone, and a bias, by torch's FlexAttention;
             needs a GPU

compare exits with 70 where a difference is beyond the rounding of its number format."""
PARTS = ("compare", "compile", "time")
ON_GPU = 60  # shapes


def main(argv: list[str] | None = None) -> int:
    """Do what the arguments name; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Print one table."""
    options = understood(argv)
    rows = {"compare": _compare, "compile": _compile, "time": _time}[options.part](options)
    for row in rows:
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()


def understood(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError for what there is not."""
    parser = Parser(prog="python -m scripts.kernels", usage=USAGE, description=ABOUT)
    parser.add_argument("part", help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--quick", action="store_true", help="few and small cases: to see that all of it runs")
    add(
        "--samples",
        type=int,
        metavar="N",
        help="compare only N shapes of the grid, drawn at random",
    )
    add(
        "--capability",
        type=int,
        default=90,
        metavar="N",
        help="compile for 80 (A100), 90 (H100; it)",
    )
    options = parser.parse_args(argv)
    if options.part not in PARTS:
        raise UserError(f"{options.part}: no such part; there are {', '.join(PARTS)}")
    if options.samples is not None and options.samples < 1:
        raise UserError(f"--samples {options.samples}: must be at least 1")
    return options


def _compare(options: argparse.Namespace) -> Iterator[str]:
    from scripts.kernels import where

    device = where.device()
    import torch

    from scripts.kernels import grid

    gpu = device.type == "cuda"
    few = 4 if options.quick else ON_GPU if gpu else len(grid.shapes())
    shapes = grid.some(options.samples or few, low=gpu)
    worst: dict[tuple[str, str], float] = {}
    wrong: list[str] = []

    def note(kernel: str, case: object, low: bool, found: grid.Differences) -> None:
        number_format = torch.bfloat16 if low else torch.float32
        if max(found.values()) > grid.BOUNDS[number_format]:
            wrong.append(f"{case}: {found}")
        for name, value in found.items():
            key = (f"{kernel}, {str(number_format).removeprefix('torch.')}", name)
            worst[key] = max(worst.get(key, 0.0), value)

    for shape in shapes:
        note("attention", shape, shape.low, grid.compare(shape, device))
    for case in list(grid.losses())[: 4 if options.quick else None]:
        note("loss", case, case.low, grid.compare_loss(case, device))
    yield f"{len(shapes)} shapes of attention; largest difference over the largest number"
    yield from _table(("kernel", "of", "difference"), [(*k, f"{v:.1e}") for k, v in worst.items()])
    if wrong:
        shown = "\n".join(wrong[:5])
        raise UserError(f"{len(wrong)} cases differ by more than rounding:\n{shown}", Exit.DIVERGED)


def _compile(options: argparse.Namespace) -> Iterator[str]:
    os.environ["TRITON_INTERPRET"] = "0"
    from scripts.kernels.compiled import Needs, needs

    yield f"compute capability {options.capability / 10:.1f}"
    rows = [tuple(map(str, found)) for found in needs(options.capability, options.quick)]
    yield from _table(Needs._fields, rows)


def _time(options: argparse.Namespace) -> Iterator[str]:
    from scripts.kernels import where

    device = where.device()
    if device.type != "cuda" and not options.quick:
        raise UserError(
            "time: needs a GPU; time --quick runs one tiny case without", Exit.NO_MEMORY
        )
    from scripts.kernels.timing import timed

    rows = [
        (t.task, t.contestant, f"{1e3 * t.seconds:.3f}", f"{t.bytes / 1e9:.2f}", t.failed)
        for t in timed(device, options.quick)
    ]
    yield from _table(("task", "contestant", "ms", "GB", ""), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
