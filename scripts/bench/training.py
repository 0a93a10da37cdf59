"""Training: nmt's own updates beside those of other libraries, on the same batches."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from nmt.config.settings import Settings
from scripts.bench import corpus, setups
from scripts.bench.candidates import Candidate
from scripts.bench.corpus import SyntheticCorpus
from scripts.bench.rounds import Measurement, benchmark, fastest, middle, ratio, to_json
from scripts.bench.session import Session
from scripts.bench.setups import Options
from scripts.bench.table import GIGA, BenchPart, Columns, figure, figure_of, gigabytes, rates

PEERS = ("xtransformers", "marian_hf")
UPDATES = 3  # of a round
WARMUP = 1  # rounds
MEANING = (
    "MFU: model operations over the matmul peak (greatest of the rounds) in the same "
    "number format, by wall clock and by CPU seconds; of f32: over the float32 peak",
    "/f32 peer, /peer: over the fastest peer in float32, and in the precision of the row; "
    "medians over the same rounds",
)
SHARE, BY_CPU = "share of the peak", "share of the peak, by CPU seconds"
BEST_F32, BEST = "over the best float32 peer", "over the best peer of the same precision"
UPDATE = "seconds of an update"


def mfu(measured: Measurement) -> str:
    """The cell of the share of the matmul peak in the same precision."""
    return figure(_own(measured, SHARE), "{:.1%}")


def _own(measured: Measurement, name: str) -> float | None:
    """The share of the peak in the precision that the candidate's name holds."""
    shares: dict[str, float | None] = measured.figures[name]
    return shares[next(word for word in measured.name.split() if word in shares)]


COLUMNS: Columns = {
    "target tokens/s": rates,
    "/f32 peer": figure_of(BEST_F32, "{:.2f}"),
    "/peer": figure_of(BEST, "{:.2f}"),
    "MFU": mfu,
    "by CPU s": lambda m: figure(_own(m, BY_CPU), "{:.1%}"),
    "of f32": lambda m: figure(m.figures[SHARE]["float32"], "{:.1%}"),
    "s/update": figure_of(UPDATE, "{:.3f}"),
    "GB": gigabytes,
}


def training_corpus(
    session: Session,
    settings: Settings,
    *,
    vocab: int | None = None,
    updates: int = UPDATES,
    **kind: Any,
) -> SyntheticCorpus:
    """Make the corpus for as many rounds as there will be; `kind` as `corpus.make` has it."""
    if session.quick:
        updates, kind = 1, {"pairs": 400} | kind
    place, rounds = session.place("corpus"), session.rounds + WARMUP
    return corpus.make(place, settings, vocab or session.vocab, rounds, updates=updates, **kind)


def trainer(
    session: Session, name: str, settings: Settings | str, data: SyntheticCorpus
) -> Candidate:
    """nmt's trainer with these settings; where they are a reason, one that cannot run."""
    facts = {"vocab": data.vocab, "tokens": data.tokens, "updates": data.updates}
    run = str(session.place("training") / "run")
    return session.worker(name, "train_worker", settings, store=str(data.store), run=run, **facts)


def peak(session: Session, precision: str) -> Candidate:
    """The matmul peak, measured in the same rounds as those that it is compared with."""
    return session.worker(f"matmul {precision}", "matmul_worker", precision=precision)


def trainings(
    session: Session, data: SyntheticCorpus, precisions: Sequence[str], *groups: Sequence[Candidate]
) -> tuple[list[list[Measurement]], dict[str, Measurement]]:
    """Let trainings take turns with the matmul peaks of some precisions, which it returns, too.

    Their figures are the shares of these peaks and the seconds of an update.
    """
    distinct = list(dict.fromkeys(precisions))
    peaks = [peak(session, precision) for precision in distinct]
    *measured, tops = benchmark(session.rounds, *groups, peaks, warmup=WARMUP, ends=session.ends)
    by_precision = dict(zip(distinct, tops, strict=True))
    for m in itertools.chain(*measured):
        for name, clock in ((SHARE, "seconds"), (BY_CPU, "cpu_seconds")):
            shares = {p: utilisation(m, top, data, clock) for p, top in by_precision.items()}
            m.figures[name] = shares
        m.figures[UPDATE] = middle([seconds / data.updates for seconds in m.seconds])
    return measured, by_precision


def parts(session: Session) -> list[BenchPart]:
    """Measure updates of the chosen encoding, of `relative`, and of the peers.

    All have the same model size and batches. Each precision is a benchmark of its own, so that few
    processes fill the memory at once; the best peer in float32 takes part in all of them.
    """
    settings = session.settings(f"trainer.precision={session.precisions[0]}")
    data = training_corpus(session, settings)

    def other(name: str, precision: str, options: Options) -> Candidate:
        return session.peer(
            name, precision, settings, part="training", options=options, updates=data.updates,
            batches=str(data.batches), label_smoothing=settings.optim.label_smoothing,
        )  # fmt: skip

    measured, notes, facts = list[Measurement](), list[str](), dict[str, Any](setups={}, peaks={})
    plain: Callable[[], Candidate] | None = None  # makes the best peer in float32
    for precision in sorted(set(session.precisions), reverse=True):
        chosen = {
            name: setups.best(session, name, "training", partial(other, name, precision))
            for name in session.peers_among(PEERS)
        }
        encodings = choices(session, precision, "encoding=relative")
        (product, peers, again), peaks = trainings(
            session,
            data,
            ["float32", precision],
            [trainer(session, name, s, data) for name, s in encodings.items()],
            [other(name, precision, options) for name, (options, _) in chosen.items()],
            [] if plain is None else [plain()],
        )
        best = fastest(peers)
        in_float32 = again[0] if again else best if precision == "float32" else None
        for m in (turn := [*product, *peers, *again]):
            ratios = {BEST_F32: ratio(m, in_float32), BEST: ratio(m, best)}
            m.figures |= {"benchmark": precision} | ratios
        measured += turn
        notes += [f"{name} {precision}: {line}" for name, (_, line) in chosen.items()]
        rates_of_peaks = (f"{name} {giga(top)} GFLOP/s" for name, top in peaks.items())
        notes.append(f"matmul peak in the rounds of {precision}: {', '.join(rates_of_peaks)}")
        facts["setups"][precision] = {name: options for name, (options, _) in chosen.items()}
        facts["peaks"][precision] = to_json(peaks)
        if precision == "float32" and best is not None:
            name = best.name.split()[0]
            plain = partial(other, name, precision, chosen[name][0])
    return [report(settings, data, measured, notes, facts)]


def choices(session: Session, precision: str, *others: str) -> dict[str, Settings]:
    """The chosen encoding and others in a number format, by the names of the candidates."""
    chosen = {}
    for more in ((), *((other,) for other in others)):
        settings = session.settings(f"trainer.precision={precision}", *more)
        chosen[" ".join(["nmt", *settings.encoding, precision])] = settings
    return chosen


def report(
    settings: Settings,
    data: SyntheticCorpus,
    measured: list[Measurement],
    notes: list[str],
    facts: dict[str, Any],
) -> BenchPart:
    """The table of all precisions."""
    tokens, (source, target), options = data.tokens, data.real, settings.trainer
    shares = (
        f"share of real tokens: target {target:.3f}, source {source:.3f}; "
        f"{sum(tokens) / len(tokens):.0f} real target tokens an update"
    )
    differs = {m.name.split()[0]: m.facts["differs"] for m in measured if "differs" in m.facts}
    facts |= {
        "model": asdict(settings.model),
        "batch_tokens": options.batch_tokens,
        "vocabulary": data.vocab,
        "updates of a round": data.updates,
        "share of real tokens": {"source": source, "target": target},
    }
    return BenchPart.of(
        "training",
        f"training: {size(settings)}, vocabulary {data.vocab}, "
        f"{options.batch_tokens} tokens a batch ({options.batch_count})",
        COLUMNS,
        measured,
        [*MEANING, shares, *(f"{name}: {how}" for name, how in differs.items()), *notes],
        **facts,
    )


def utilisation(
    measured: Measurement, top: Measurement, data: SyntheticCorpus, clock: str
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


def size(settings: Settings) -> str:
    """A model's size in a few words."""
    m = settings.model
    return (
        f"{m.encoder_layers}+{m.decoder_layers} layers, dim {m.dim}, ff {m.feedforward_dim}, "
        f"{m.heads} heads"
    )


def giga(measured: Measurement) -> str:
    """The median rate in billions per second."""
    return figure(middle([rate / GIGA for rate in measured.rates]), "{:,.0f}")
