"""Which of two calls takes less time on this processor."""

import time
from collections.abc import Callable

import torch

ROUNDS, LONGEST = 30, 0.05  # at most, and seconds after which no further one begins


def is_faster(
    candidate: Callable[[], object], plain: Callable[[], object], times: float = 1.0
) -> bool:
    """Tell whether a call is so many times as fast as a plain one on one core, or faster.

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
    return times * min(ours for ours, _ in rounds) < min(theirs for _, theirs in rounds)


def _seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began
