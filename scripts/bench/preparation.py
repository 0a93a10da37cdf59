"""Preparation: text files to a store of ids, and sacremoses and subword-nmt used plainly."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np

from nmt.config.settings import Settings
from nmt.corpus.pairs import SIDES
from scripts.bench import corpus
from scripts.bench.rounds import Candidate, benchmark, ratio
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, rates, rows_of

PAIRS, FEW = 40_000, 200  # enough that `data.workers` by default starts several processes
MERGES = 8000
LANGUAGES = ("de", "en")
PLAIN = "over plain"


# made-up text
WORDS = 2**18  # so many different ones in a very long text
SYLLABLES = [
    onset + vowel + coda
    for vowel in ("a", "e", "i", "o", "u", "ei", "ä")
    for onset in ("b", "d", "f", "g", "gl", "k", "l", "m", "n", "r", "s", "sch", "t", "w")
    for coda in ("", "n", "r")
]
COMMAS, NUMBERS = 0.08, 0.015  # shares of the words


def show_million(c: Candidate, clock: str) -> str:
    seconds = [1e6 * r[clock] / r["units"] for r in c.rounds]
    return figure(median(seconds) if seconds else None, "{:,.0f}")


COLUMNS: Columns = {
    "lines/s": rates,
    "/plain": figure_of(PLAIN, "{:.2f}"),
    "s/million": lambda c: show_million(c, "seconds"),
    "CPU s/million": lambda c: show_million(c, "cpu_seconds"),
    "GB": gigabytes,
}


def measure(session: Session) -> BenchPart:
    """Measure whole preparations: as many processes as threads, one process, and the plain way."""
    root, out = write_text(session), session.new_directory("plain")
    settings = settings_of(session, root)
    counts = sorted({session.options.threads, 1}, reverse=True)
    plain = session.worker(
        "sacremoses + subword-nmt, 1 process",
        "prepare plainly",
        texts=[str(root / f"train.{language}") for language in LANGUAGES],
        languages=LANGUAGES,
        merges=merges_of(session),
        min_frequency=settings.segmenter.min_frequency,
        outputs=[str(out / side) for side in SIDES],
        threads=1,
    )
    candidates = [make_nmt(session, settings, workers) for workers in counts]
    measured = [*candidates, plain]
    benchmark(measured, min(session.options.rounds, 3), warmup=0)
    return report(measured)


def merges_of(session: Session) -> int:
    return 100 if session.options.quick else MERGES


def write_text(session: Session) -> Path:
    root, pairs = session.new_directory("text"), FEW if session.options.quick else PAIRS
    for split, count in (("train", pairs), ("dev", 20)):
        for number, language in enumerate(LANGUAGES):
            lines = make_lines(count, seed=10 * number + len(split))
            corpus.write(root / f"{split}.{language}", lines)
    return root


def make_lines(count: int, seed: int) -> list[str]:
    """Text with what preparation meets in news: ever more words, commas, names and numbers."""
    lengths, _ = corpus.lengths(count, corpus.MEAN, seed)
    ranks = corpus.zipf(int(lengths.sum()), WORDS, seed).tolist()
    kinds = np.random.default_rng([seed, 4]).random(len(ranks)).tolist()
    words = map(make_word, ranks, kinds)
    return [f"{' '.join(islice(words, length))}." for length in lengths.tolist()]


def make_word(rank: int, kind: float) -> str:
    """The word of a rank, frequent ones short; by its kind in [0, 1), a number, or with a comma."""
    if kind < NUMBERS:
        return f"{rank / 10:,.1f}"
    word, rest = "", rank
    while rest or not word:
        rest, syllable = divmod(rest, len(SYLLABLES))
        word += SYLLABLES[syllable]
    word = word.capitalize() if rank % 5 == 0 else word  # a name
    return f"{word}," if kind < NUMBERS + COMMAS else word


def settings_of(session: Session, root: Path) -> Settings:
    source, target = LANGUAGES
    return session.settings(
        *("data=files", "data.max_length=10000", "segmenter=bpe", f"data.root={root}"),
        *(f"data.source_language={source}", f"data.target_language={target}"),
        f"segmenter.merges={merges_of(session)}",
    )


def make_nmt(session: Session, settings: Settings, workers: int) -> Candidate:
    cache = str(session.new_directory("prepared"))
    settings = replace(settings, data=replace(settings.data, cache=cache, workers=workers))
    name = f"nmt, {workers} process{'es' if workers > 1 else ''}"
    return session.worker(name, "prepare", settings, threads=1)


def report(measured: list[Candidate]) -> BenchPart:
    """The table; the plain way is the last one."""
    *_, plain = measured
    for c in measured:
        c.figures = {PLAIN: ratio(c, plain)}
    notes = ["whole preparation: normalise, tokenise (Moses), learn merges, segment, write"]
    if seconds := plain.last("parts"):
        shares = ", ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items())
        notes.append(f"the plain way, last round: {shares}")
    title, facts = "preparation: lines of both sides", {"entries": [c.to_json() for c in measured]}
    return BenchPart("preparation", title, list(COLUMNS), rows_of(COLUMNS, measured), notes, facts)
