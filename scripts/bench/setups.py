"""The set-up in which a peer is fastest here: a comparison with another one would flatter us.

A set-up is what a peer leaves to its user: workers and their threads, sentences or tokens of a
batch, which kernels of attention. Which is the best depends on the processor, so that all that
make sense take turns before the rounds that are reported.
"""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import median

from scripts.bench.rounds import Contestant, race

Options = dict[str, int | str]
ROUNDS = 2  # of the search, after a warm-up


def candidates(peer: str, part: str, threads: int, device: str) -> list[Options]:
    """List the set-ups of a peer in one part of the bench, with so many threads in all."""
    on_cpu = device == "cpu"
    attention: list[Options] = [{"attention": kind} for kind in ("sdpa", "eager")]
    if part == "training":
        return attention
    sentences: list[Options] = [
        {"sentences": count} for count in ((16, 64, 256) if on_cpu else (64, 256))
    ]
    if peer == "ctranslate2_":
        workers = [n for n in range(1, threads + 1) if threads % n == 0] if on_cpu else [1]
        tokens = (512, 1024, 2048) if on_cpu else (2048, 16384)
        return [
            {"workers": count, "threads": threads // count, "tokens": batch}
            for count, batch in product(workers, tokens)
        ]
    if peer == "marian_hf":
        return [one | other for one, other in product(attention, sentences)]
    return sentences


def fastest(
    make: Callable[[Options], Contestant], options: Sequence[Options], quick: bool = False
) -> Options:
    """Let all set-ups take turns and return the fastest; the first one if none of them runs."""
    entries = race([make(each) for each in options], 1 if quick else ROUNDS, 0 if quick else 1)
    rates = [median(entry.rates) if entry.rounds else 0.0 for entry in entries]
    return options[rates.index(max(rates))]


def described(chosen: Options, of: Sequence[Options]) -> str:
    """A set-up in words, as `workers 2, threads 1, tokens 1024 (the fastest of 6)`."""
    words = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return f"{words} (the fastest of {len(of)})"
