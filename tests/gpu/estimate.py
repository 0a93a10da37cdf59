"""A training step on a GPU that nobody has here: its kernels, its bytes, and a time from them.

    python -m tests.gpu.estimate absolute relative

Counted are kernels and bytes of an update of the base model in bfloat16 after the first one, with
`tests.gpu.counting`. A kernel takes as long as its bytes at 3.0 TB/s or its operations at 650
TFLOP/s, whichever is more; the host launches one in 5 microseconds meanwhile, and the step takes as
long as the slower of the two. MFU: operations of the model (`scripts/bench/flops.py`) in that time,
of 790 TFLOP/s. These are estimates of an H200, which no measurement has confirmed.
"""

import argparse
import sys
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from nmt import build
from nmt.config import Settings
from nmt.overrides.compose import experiment_of
from nmt.training.loss import Ready
from nmt.training.objective import Objective
from scripts.bench import flops
from tests.gpu.counting import LAUNCH, Counting, Kernel, counted, made, moved
from tests.gpu.fusing import fused
from tests.gpu.pretended import GPU

MEASURED = 790e12  # operations/s of an H200 in bfloat16
VOCAB = 32_000
BATCHES = ((4_700, 25), (25_000, 25), (25_000, 256))  # target tokens, of a sentence


class Update(NamedTuple):
    """The kernels of one update, by its parts."""

    forward: list[Kernel]
    loss: list[Kernel]
    backward: list[Kernel]
    optimizer: list[Kernel]

    @property
    def all(self) -> list[Kernel]:
        """In their order."""
        return [kernel for part in self for kernel in part]

    def compiled(self) -> "Update":
        """With hidden states and their gradients made by fused kernels: see `tests.gpu.fusing`."""
        return Update(*fused(self, [True, False, True, False]))


class Estimate(NamedTuple):
    """What a step costs."""

    kernels: int
    bytes: int
    launching: float  # seconds of the host
    computing: float  # seconds of the GPU
    mfu: float


def update(settings: Settings, rows: int, length: int, vocab: int = VOCAB) -> Update:
    """Count the second update of a model on sentences that all have `length` tokens."""
    torch.manual_seed(0)
    model = build.transformer(settings, vocab, vocab).train()
    with counted() as counting:
        objective = Objective(moved(model), settings.optim.label_smoothing, GPU)
        parameters = list(model.parameters())
        optimizer = torch.optim.AdamW(parameters, 1e-3, fused=True)
        ids = [made(rows, length, dtype=torch.long) for _ in range(2)]
        tokens = [made(rows * length, dtype=torch.long) for _ in range(2)]
        batch = Ready(ids[0], ids[1], {}, tokens[0], tokens[1], [])
        for _ in range(2):  # the first one makes the optimizer's state
            optimizer.zero_grad(set_to_none=True)
            counting.kernels.clear()
            marks = _step(counting, objective, batch, optimizer)
    ends = [0, *marks, len(counting.kernels)]
    return Update(*(counting.kernels[a:b] for a, b in pairwise(ends)))


def _step(
    counting: Counting, objective: Objective, batch: Ready, optimizer: torch.optim.Optimizer
) -> list[int]:
    """An update as the trainer makes it; gives where its parts begin among the kernels."""
    marks: list[int] = []

    def mark(*_: object) -> None:
        marks.append(len(counting.kernels))

    hook = objective.model.decoder.register_forward_hook(mark)
    with torch.autocast(GPU.type, torch.bfloat16):
        mean, _ = objective(batch, len(batch.expected))
    hook.remove()
    mark()
    mean.backward()
    mark()
    parameters = optimizer.param_groups[0]["params"]
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    clip_grads_with_norm_(parameters, 1.0, norm)
    optimizer.step()
    return marks


def estimate(kernels: list[Kernel], operations: int) -> Estimate:
    """What kernels cost that do so many operations of a model."""
    launches = sum(k.launches for k in kernels)
    host, gpu = LAUNCH * launches, sum(k.seconds for k in kernels)
    share = operations / max(host, gpu) / MEASURED
    return Estimate(launches, sum(k.bytes for k in kernels), host, gpu, share)


def row(name: str, tokens: int, length: int, how: str, found: Estimate) -> str:
    """A line of the table."""
    host, gpu = 1e3 * found.launching, 1e3 * found.computing
    return (
        f"| {name} | {tokens:,} | {length} | {how} | {found.kernels:,} | {found.bytes / 1e9:.1f} "
        f"| {host:.1f} | {gpu:.1f} | {found.mfu:.2f} |\n"
    )


def detail(made: Update) -> str:
    """The kernels that move most, by parts."""
    lines = []
    for part, kernels in made._asdict().items():
        names = Counter[str]()
        for k in kernels:
            names[k.name] += k.launches
        spent = sum(k.seconds for k in kernels)
        lines.append(f"  {part}: {sum(names.values())} kernels, {1e3 * spent:.2f} ms")
        by_name = {name: sum(k.seconds for k in kernels if k.name == name) * 1e3 for name in names}
        most = sorted(by_name, key=lambda name: -by_name[name])[:8]
        lines += [f"    {name}: {names[name]} x, {by_name[name]:.2f} ms" for name in most]
    return "\n".join(lines) + "\n"


def understood(argv: list[str]) -> argparse.Namespace:
    """What the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.estimate", description=__doc__)
    parser.add_argument("encodings", nargs="*", default=["absolute", "relative"])
    parser.add_argument("--model", default="base")
    parser.add_argument("--detail", action="store_true", help="also say which kernels cost most")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Print the table."""
    options = understood(argv)
    out = sys.stdout.write
    out("| encoding | tokens | of a sentence | how | kernels | GB | launches ms | GPU ms | MFU |\n")
    out("|---|---|---|---|---|---|---|---|---|\n")
    for name in options.encodings:
        settings = experiment_of([f"encoding={name}", f"model={options.model}"]).settings
        for tokens, length in BATCHES:
            rows = tokens // length
            found = update(settings, rows, length)
            lengths = [length] * rows
            operations = flops.training(settings.model, VOCAB, lengths, lengths)
            for how, step in (("eager", found), ("compiled", found.compiled())):
                out(row(name, tokens, length, how, estimate(step.all, operations)))
                if options.detail:
                    out(detail(step))


if __name__ == "__main__":
    main(sys.argv[1:])
