"""Whether numbers of fewer bits make products faster on this processor, measured here.

The names of a processor's instructions do not say which of them torch's libraries use (variables
such as ONEDNN_MAX_CPU_ISA forbid some), nor that a kernel for them is a fast one. Without fast ones
torch computes the same by other means, several to a thousand times as slowly as in float32.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 128, 256, 512  # of the product tried: a decoding step of 32 sentences
NO_BFLOAT16 = "%s.precision=bfloat16: not faster than float32 on this CPU: float32 is used"
NO_UNITS = "%s.precision=auto: this GPU has no units for bfloat16: float32 is used"
ROUNDS, LONGEST = 30, 0.05  # at most, and seconds after which no further one begins


def is_faster(candidate: Callable[[], object], plain: Callable[[], object]) -> bool:
    """Tell whether a call takes less time than a plain one on one core.

    The least of interleaved rounds after a warm-up, which may generate code; in CPU time of this
    thread, so that other processes of a busy machine do not decide.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds: list[tuple[float, float]] = []
        _seconds(plain), _seconds(candidate)
        began = time.thread_time()
        while len(rounds) < ROUNDS and time.thread_time() - began < LONGEST:
            rounds.append((_seconds(candidate), _seconds(plain)))
    finally:
        torch.set_num_threads(threads)
    return min(ours for ours, _ in rounds) < min(theirs for _, theirs in rounds)


@cache
@torch.inference_mode()
def bfloat16_is_faster() -> bool:
    """Tell whether this CPU multiplies in bfloat16 faster than in float32, some two to four times.

    Tried once per process, in milliseconds; the answers lie far apart: where no instructions for
    bfloat16 are used, its products take 1.3 to 10 times as long as those of float32.
    """
    linear, x = example()
    lower, y = deepcopy(linear).bfloat16(), x.bfloat16()
    return is_faster(lambda: lower(y), lambda: linear(x))


def example() -> tuple[nn.Linear, torch.Tensor]:
    """A linear layer and inputs [ROWS, INPUTS] to try formats on, the same always."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Linear(INPUTS, OUTPUTS), torch.randn(ROWS, INPUTS)


def _seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began
