"""The set-up in which a peer is fastest here: a comparison with another one would flatter us.

A set-up is what a peer leaves to its user: workers and their threads, sentences or tokens of a
batch, which kernels of attention. Which one is best depends on the processor, so all that make
sense take turns before the rounds that are reported.
"""

from collections.abc import Callable, Sequence
from itertools import product

from scripts.bench import rounds
from scripts.bench.candidates import Candidate
from scripts.bench.session import Session

Options = dict[str, int | str]
ROUNDS = 2  # of the search, after a warm-up


def choices(peer: str, part: str, threads: int, device: str) -> list[Options]:
    """List the set-ups of a peer in one part of the bench, with so many threads in all."""
    on_cpu = device == "cpu"
    attention: list[Options] = [{"attention": kind} for kind in ("sdpa", "eager")]
    if part == "training":
        return attention
    if peer == "ctranslate2_":
        workers = [n for n in range(1, threads + 1) if threads % n == 0] if on_cpu else [1]
        return [
            {"workers": count, "threads": threads // count, "tokens": tokens}
            for count in workers
            for tokens in ((512, 1024, 2048) if on_cpu else (2048, 16384))
        ]
    sentences: list[Options] = [{"sentences": n} for n in (16, 64, 256)[0 if on_cpu else 1 :]]
    if peer == "marian_hf":
        return [one | other for one, other in product(attention, sentences)]
    return sentences


def fastest(
    make: Callable[[Options], Candidate], options: Sequence[Options], quick: bool = False
) -> Options:
    """Let all set-ups take turns and return the fastest; the first one if none of them runs."""
    count, warmup = (1, 0) if quick else (ROUNDS, 1)
    groups = rounds.benchmark(count, *([make(choice)] for choice in options), warmup=warmup)
    best = rounds.fastest([measured for (measured,) in groups])
    return next((o for o, (m,) in zip(options, groups, strict=True) if m is best), options[0])


def best(
    session: Session, peer: str, part: str, make: Callable[[Options], Candidate]
) -> tuple[Options, str]:
    """The fastest set-up of a peer in a part of the bench, and a line that describes it."""
    options = choices(peer, part, session.threads, session.device)
    chosen = fastest(make, options, session.quick)
    return chosen, described(chosen, options)


def described(chosen: Options, among: Sequence[Options]) -> str:
    """A set-up in a line, as `workers 2, threads 1, tokens 1024 (the fastest of 6)`."""
    values = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return f"{values} (the fastest of {len(among)})"
