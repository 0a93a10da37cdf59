"""The set-up in which a peer is fastest here: a comparison with another one would flatter us.

A set-up is what a peer leaves to its user: workers and their threads, sentences or tokens of a
batch, which kernels of attention. Which one is best depends on the processor, so all that make
sense take turns before the rounds that are reported.
"""

from collections.abc import Callable, Sequence
from itertools import product

from scripts.bench import rounds
from scripts.bench.candidates import Candidate

Setup = dict[str, int | str]
ROUNDS = 2  # of the search, after a warm-up


def setups_of(peer: str, part: str, threads: int, device: str) -> list[Setup]:
    """List the set-ups of a peer in one part of the bench, with so many threads in all."""
    on_cpu = device == "cpu"
    attention: list[Setup] = [{"attention": kind} for kind in ("sdpa", "eager")]
    if part == "training":
        return attention
    if peer == "ctranslate2_":
        workers = [n for n in range(1, threads + 1) if threads % n == 0] if on_cpu else [1]
        return [
            {"workers": count, "threads": threads // count, "tokens": tokens}
            for count in workers
            for tokens in ((512, 1024, 2048) if on_cpu else (2048, 16384))
        ]
    sentences: list[Setup] = [{"sentences": n} for n in (16, 64, 256)[0 if on_cpu else 1 :]]
    if peer == "marian_hf":
        return [one | other for one, other in product(attention, sentences)]
    return sentences


def find_fastest(
    make: Callable[[Setup], Candidate], setups: Sequence[Setup], quick: bool = False
) -> tuple[Setup, str]:
    """Let all set-ups take turns; the fastest, or the first if none of them runs, and a line of it.

    The line is as `workers 2, threads 1, tokens 1024 (the fastest of 6)`.
    """
    count, warmup = (1, 0) if quick else (ROUNDS, 1)
    measured = rounds.benchmark(count, *([make(setup)] for setup in setups), warmup=warmup)
    best = rounds.fastest([m for (m,) in measured])
    chosen = next((s for s, (m,) in zip(setups, measured, strict=True) if m is best), setups[0])
    values = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return chosen, f"{values} (the fastest of {len(setups)})"
