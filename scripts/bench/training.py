"""Training: nmt's own updates beside those of other libraries, on the same batches."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from nmt.config.settings import Settings
from scripts.bench import corpus
from scripts.bench.candidates import Candidate
from scripts.bench.corpus import SyntheticCorpus
from scripts.bench.rounds import Measurement, benchmark, fastest, middle, ratio
from scripts.bench.session import Session
from scripts.bench.setups import Setup, find_fastest, setups_of
from scripts.bench.table import (
    GIGA,
    BenchPart,
    Columns,
    figure,
    figure_of,
    gigabytes,
    rates,
    rows_of,
)

PEERS = ("xtransformers", "marian_hf")
UPDATES = 3  # of a round
WARMUP = 1  # rounds
MEANING = [
    "MFU: model operations over the matmul peak (greatest of the rounds) in the same "
    "number format, by wall clock and by CPU seconds; of f32: over the float32 peak",
    "/f32 peer, /peer: over the fastest peer in float32, and in the precision of the row; "
    "medians over the same rounds",
]
SHARE, BY_CPU = "share of the peak", "share of the peak, by CPU seconds"
BEST_F32, BEST = "over the best float32 peer", "over the best peer of the same precision"
UPDATE = "seconds of an update"


def show_share(measured: Measurement, name: str = SHARE) -> str:
    shares = measured.figures[name]
    return figure(shares[next(w for w in measured.name.split() if w in shares)], "{:.1%}")


COLUMNS: Columns = {
    "target tokens/s": rates,
    "/f32 peer": figure_of(BEST_F32, "{:.2f}"),
    "/peer": figure_of(BEST, "{:.2f}"),
    "MFU": show_share,
    "by CPU s": lambda m: show_share(m, BY_CPU),
    "of f32": lambda m: figure(m.figures[SHARE]["float32"], "{:.1%}"),
    "s/update": figure_of(UPDATE, "{:.3f}"),
    "GB": gigabytes,
}


def parts(session: Session) -> list[BenchPart]:
    """Measure updates of the chosen encoding, of `relative`, and of the peers.

    All have the same model size and batches. Each precision is a benchmark of its own, so that few
    processes fill the memory at once; the best peer in float32 takes part in all of them.
    """
    precisions = sorted(set(session.options.precision), reverse=True)  # float32 first
    settings = session.settings(f"trainer.precision={precisions[0]}")
    data = make_corpus(session, settings)
    measured, notes, facts = list[Measurement](), list[str](), dict[str, Any](setups={}, peaks={})
    best: tuple[str, Setup] | None = None  # the fastest peer in float32
    for precision in precisions:
        make = partial(make_peer, session, settings, data)
        setups = {}
        for name in session.choose_peers(PEERS):
            every = setups_of(name, "training", session.options.threads, session.device)
            of_setup = partial(make, name, precision)
            setups[name], line = find_fastest(of_setup, every, session.options.quick)
            notes.append(f"{name} {precision}: {line}")
        (product, peers, again), peaks = measure_trainings(
            session,
            data,
            ["float32", precision],
            make_trainers(session, data, precision),
            [make(name, precision, setup) for name, setup in setups.items()],
            [make(best[0], "float32", best[1])] if best else [],
        )
        fastest_peer = fastest(peers)
        if precision == "float32" and fastest_peer:
            name = fastest_peer.name.split()[0]
            best = name, setups[name]
        in_float32 = again[0] if again else fastest_peer if precision == "float32" else None
        for m in [*product, *peers, *again]:
            ratios = {BEST_F32: ratio(m, in_float32), BEST: ratio(m, fastest_peer)}
            m.figures |= {"benchmark": precision} | ratios
            measured.append(m)
        tops = ", ".join(f"{name} {giga(top)} GFLOP/s" for name, top in peaks.items())
        notes.append(f"matmul peak in the rounds of {precision}: {tops}")
        facts["setups"][precision] = setups
        facts["peaks"][precision] = {name: top.to_json() for name, top in peaks.items()}
    return [report(settings, data, measured, notes, facts)]


def make_corpus(
    session: Session,
    settings: Settings,
    *,
    vocab: int | None = None,
    updates: int = UPDATES,
    **kind: Any,
) -> SyntheticCorpus:
    """Make the corpus for as many rounds as there will be; `kind` as `corpus.make` has it."""
    if session.options.quick:
        updates, kind = 1, {"pairs": 400} | kind
    directory, rounds = session.new_directory("corpus"), session.options.rounds + WARMUP
    return corpus.make(directory, settings, vocab or session.vocab, rounds, updates=updates, **kind)


def make_peer(
    session: Session, settings: Settings, data: SyntheticCorpus, name: str, precision: str, s: Setup
) -> Candidate:
    job: dict[str, Any] = {"part": "training", "options": s, "updates": data.updates}
    job |= {"batches": str(data.batches), "label_smoothing": settings.optim.label_smoothing}
    return session.peer(name, precision, settings, **job)


def make_trainers(session: Session, data: SyntheticCorpus, precision: str) -> list[Candidate]:
    """The chosen encoding and `relative` in a number format; each once."""
    chosen = {}
    for more in ([], ["encoding=relative"]):
        settings = session.settings(f"trainer.precision={precision}", *more)
        chosen[" ".join(["nmt", *settings.encoding, precision])] = settings
    return [make_trainer(session, name, settings, data) for name, settings in chosen.items()]


def make_trainer(
    session: Session, name: str, settings: Settings | str, data: SyntheticCorpus
) -> Candidate:
    """nmt's trainer with these settings; where they are a reason, one that cannot run."""
    facts = {"vocab": data.vocab, "tokens": data.tokens, "updates": data.updates}
    run = str(session.new_directory("training") / "run")
    return session.worker(name, "train", settings, store=str(data.store), run=run, **facts)


def make_peak(session: Session, precision: str) -> Candidate:
    """The matmul peak, measured in the same rounds as those that it is compared with."""
    return session.worker(f"matmul {precision}", "matmul", precision=precision)


def measure_trainings(
    session: Session, data: SyntheticCorpus, precisions: Sequence[str], *groups: Sequence[Candidate]
) -> tuple[list[list[Measurement]], dict[str, Measurement]]:
    """Let trainings take turns with the matmul peaks of some precisions, which it returns, too.

    Their figures are the shares of these peaks and the seconds of an update.
    """
    names = list(dict.fromkeys(precisions))
    peaks = [make_peak(session, name) for name in names]
    rounds = session.options.rounds
    *measured, tops = benchmark(rounds, *groups, peaks, warmup=WARMUP, ends=session.ends)
    by_precision = dict(zip(names, tops, strict=True))
    for m in itertools.chain(*measured):
        for share, clock in ((SHARE, "seconds"), (BY_CPU, "cpu_seconds")):
            m.figures[share] = {
                name: share_of(top, m, data, clock) for name, top in by_precision.items()
            }
        m.figures[UPDATE] = middle([seconds / data.updates for seconds in m.seconds])
    return measured, by_precision


def share_of(
    top: Measurement, measured: Measurement, data: SyntheticCorpus, clock: str
) -> float | None:
    """Model operations per second over the greatest peak of all rounds; the median of rounds.

    With clock="cpu_seconds" both are per second of a core, which other processes disturb less.
    """
    work, n = data.flops, data.updates
    peaks = [r["units"] / r[clock] for r in top.rounds if r[clock] > 0]
    shares = []
    for number, answer in enumerate(measured.rounds, WARMUP):
        done = sum(work[i % len(work)] for i in range(number * n, (number + 1) * n))
        if answer[clock] > 0 and peaks:
            shares.append(done / answer[clock] / max(peaks))
    return middle(shares)


def report(
    settings: Settings,
    data: SyntheticCorpus,
    measured: list[Measurement],
    notes: list[str],
    facts: dict[str, Any],
) -> BenchPart:
    tokens, (source, target), options = data.tokens, data.real, settings.trainer
    shares = (
        f"share of real tokens: target {target:.3f}, source {source:.3f}; "
        f"{sum(tokens) / len(tokens):.0f} real target tokens an update"
    )
    differs = {m.name.split()[0]: m.facts["differs"] for m in measured if "differs" in m.facts}
    title = (
        f"training: {size_of(settings)}, vocabulary {data.vocab}, "
        f"{options.batch_tokens} tokens a batch ({options.batch_count})"
    )
    facts |= {
        "entries": [m.to_json() for m in measured],
        "model": asdict(settings.model),
        "batch_tokens": options.batch_tokens,
        "vocabulary": data.vocab,
        "updates of a round": data.updates,
        "share of real tokens": {"source": source, "target": target},
    }
    notes = [*MEANING, shares, *(f"{name}: {how}" for name, how in differs.items()), *notes]
    return BenchPart("training", title, list(COLUMNS), rows_of(COLUMNS, measured), notes, facts)


def size_of(settings: Settings) -> str:
    m = settings.model
    return (
        f"{m.encoder_layers}+{m.decoder_layers} layers, dim {m.dim}, ff {m.feedforward_dim}, "
        f"{m.heads} heads"
    )


def giga(measured: Measurement) -> str:
    return figure(middle([rate / GIGA for rate in measured.rates]), "{:,.0f}")
