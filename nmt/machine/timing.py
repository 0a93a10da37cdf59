"""Which of two calls takes less time on this processor, found out once for all processes."""

import json
import os
import time
from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from nmt.errors import UserError

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Answer = TypeVar("Answer")
HANDED_DOWN = "NMT_TRIALS"  # variable with the answers of the process that started this one
_answers: dict[str, Any] = {}  # of this process

ROUNDS, LONGEST = 30, 0.05  # at most, and seconds after which no further one begins


def trial(
    read: Callable[[Any], Any] = lambda plain: plain,
) -> "Callable[[Callable[..., Answer]], _lru_cache_wrapper[Answer]]":
    """Have a function that tries this processor called once, for all processes that depend on it.

    A process that a command starts takes the answers that were handed down to it, where `read`
    makes an answer of its JSON; a forked one those that were known at the fork.
    """

    def decorate(measure: Callable[..., Answer]) -> "_lru_cache_wrapper[Answer]":
        @wraps(measure)
        def answer(*arguments: object) -> Answer:
            name = f"{measure.__name__}{arguments}"
            known = _inherited()
            _answers[name] = read(known[name]) if name in known else measure(*arguments)
            answered: Answer = _answers[name]
            return answered

        kept = cache(answer)
        kept.__wrapped__ = measure
        return kept

    return decorate


def _inherited() -> dict[str, Any]:
    """The answers that were handed down; raises UserError where they are none."""
    try:
        return dict(json.loads(os.environ.get(HANDED_DOWN, "{}")))
    except (ValueError, TypeError):
        raise UserError(f"{HANDED_DOWN}: not what a command hands down; unset it") from None


def handed_down() -> dict[str, str]:
    """The environment by which a process on this machine decides as this one has."""
    return {HANDED_DOWN: json.dumps(_answers)}


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
