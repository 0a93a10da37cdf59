"""Seconds and memory of the kernels beside what they stand in for, by length."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import where_raised
from nmt.kernels.relative import attention
from nmt.training import crossentropy
from scripts.kernels import flex
from scripts.kernels.grid import Given, Shape, plain

LENGTHS = (25, 64, 128, 256, 512, 1024, 2048, 4096)
BY_FLEX = (64, 512, 4096)  # FlexAttention takes some seconds to compile for each
TOKENS, HEADS, WIDTH, TAU, RATE = 16_384, 8, 64, 16, 0.1
VOCAB, DIM = 32_000, 512
ROUNDS = 7  # the first of them compiles, and does not count
Contestant = Callable[[], object]


class Timed(NamedTuple):
    """What one contestant took."""

    task: str
    contestant: str
    seconds: float  # the median of its rounds
    bytes: int  # the most memory beyond what it was given; 0 where nobody counts
    failed: str = ""


def timed(device: torch.device, quick: bool) -> Iterator[Timed]:
    """Forward and backward, by turns; `quick` is one tiny task, to see that all of it runs."""
    for length in LENGTHS[:1] if quick else LENGTHS:
        for causal in (False, True):
            title = f"attention, {length} tokens{', causal' if causal else ''}"
            yield from _turns(title, _attentions(length, causal, device, quick), device, quick)
    yield from _turns("loss", _losses(device, quick), device, quick)


def _attentions(
    length: int, causal: bool, device: torch.device, quick: bool
) -> dict[str, Contestant]:
    batch, heads = (1, 1) if quick else (max(1, TOKENS // length), HEADS)
    made = partial(torch.randn, device=device)
    q, k, v = (
        made(batch, heads, length, WIDTH, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    keys, values = (made(1, 2 * TAU + 1, WIDTH, requires_grad=True) for _ in range(2))
    given = Given(q, k, v, keys, values, None)
    shape = Shape(length, length, TAU, WIDTH, "both", causal=causal, low=True)
    scale = WIDTH**-0.5

    def by_kernel() -> Tensor:
        return attention(q, k, v, TAU, keys, values, scale=scale, causal=causal, rate=RATE)

    def by_row() -> Tensor:
        return plain(given, shape, RATE)

    def without() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=RATE)

    def learnt(forward: Callable[[], Tensor], leaves: list[Tensor]) -> Contestant:
        return lambda: torch.autograd.grad(forward().float().sum(), leaves)

    contestants = {
        "kernel": learnt(by_kernel, [q, k, v, keys, values]),
        "by_row": learnt(by_row, [q, k, v, keys, values]),
        "without": learnt(without, [q, k, v]),
    }
    if device.type != "cuda" or length not in BY_FLEX:
        return contestants
    bias = made(heads, 2 * TAU + 1, requires_grad=True)
    attend = flex.compiled()

    # without dropout, which FlexAttention does not have
    def keys_by_kernel() -> Tensor:
        return attention(q, k, v, TAU, keys, None, scale=scale, causal=causal)

    def keys_by_flex() -> Tensor:
        return flex.by_keys(q, k, v, TAU, keys, causal, attend)

    def bias_by_mask() -> Tensor:
        return flex.masked(q, k, v, TAU, bias, causal)

    def bias_by_flex() -> Tensor:
        return flex.by_bias(q, k, v, TAU, bias, causal, attend)

    return contestants | {
        "keys, kernel": learnt(keys_by_kernel, [q, k, v, keys]),
        "keys, FlexAttention": learnt(keys_by_flex, [q, k, v, keys]),
        "bias, mask": learnt(bias_by_mask, [q, k, v, bias]),
        "bias, FlexAttention": learnt(bias_by_flex, [q, k, v, bias]),
    }


def _losses(device: torch.device, quick: bool) -> dict[str, Contestant]:
    count, vocab = (4, 50) if quick else (TOKENS, VOCAB)
    made = partial(torch.randn, device=device)
    hidden, weight, bias = made(count, DIM), made(vocab, DIM) / DIM**0.5, made(vocab)
    target = torch.randint(vocab, (count,), device=device)

    inputs = hidden, weight, bias, target, 0.1, torch.bfloat16
    return {
        "kernel": lambda: crossentropy.loss_by_kernel(*inputs),
        "formulas": lambda: crossentropy.loss_by_formulas(*inputs, needed=True),
    }


def _turns(
    task: str, contestants: dict[str, Contestant], device: torch.device, quick: bool
) -> Iterator[Timed]:
    """Rounds of all contestants by turns; one that fails drops out, and the table says why."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    most, failed = dict.fromkeys(contestants, 0), dict.fromkeys(contestants, "")
    for _ in range(2 if quick else ROUNDS):
        for name, run in contestants.items():
            if failed[name]:
                continue
            try:
                seconds, held = _once(run, device)
            except torch.OutOfMemoryError:
                failed[name] = "out of memory"
                continue
            except Exception as error:  # what a compiler cannot do, others may
                failed[name] = where_raised(error)
                continue
            times[name].append(seconds)
            most[name] = max(most[name], held)
    for name, own in times.items():
        median = statistics.median(own[1:]) if len(own) > 1 else float("nan")
        yield Timed(task, name, median, most[name], failed[name])


def _once(run: Contestant, device: torch.device) -> tuple[float, int]:
    """Seconds, and bytes beyond those held before."""
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if gpu else 0
    began = time.perf_counter()
    kept = run()
    if gpu:
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - began
    del kept
    return seconds, torch.cuda.max_memory_allocated(device) - before if gpu else 0
