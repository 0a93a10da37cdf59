"""Training: nmt's own updates compared with those of other toolkits, on the same batches."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from nmt.config.settings import Settings
from scripts.bench import corpus, toolkits
from scripts.bench.corpus import SyntheticCorpus
from scripts.bench.rounds import Candidate, benchmark, fastest, ratio
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure_of, gigabytes, rates, rows_of
from scripts.bench.toolkits import Setup

PEERS = ("xtransformers", "marian_hf")
UPDATES = 3  # of a round
WARMUP = 1  # rounds
MEANING = (
    "/f32 peer, /peer: over the fastest peer in float32, and in the precision of the row; "
    "medians over the same rounds"
)
BEST_F32, BEST = "over the best float32 peer", "over the best peer of the same precision"
UPDATE = "seconds of an update"
COLUMNS: Columns = {
    "target tokens/s": rates,
    "/f32 peer": figure_of(BEST_F32, "{:.2f}"),
    "/peer": figure_of(BEST, "{:.2f}"),
    "s/update": figure_of(UPDATE, "{:.3f}"),
    "GB": gigabytes,
}


def measure(session: Session) -> BenchPart:
    """Measure updates of the chosen encoding, of `relative`, and of the peers.

    All have the same model size and batches. Each precision is a benchmark of its own, so that few
    processes fill the memory at once; the best peer in float32 takes part in all of them.
    """
    precisions = sorted(set(session.options.precision), reverse=True)  # float32 first
    settings = session.settings(f"trainer.precision={precisions[0]}")
    data = make_corpus(session, settings)
    measured, notes, chosen = list[Candidate](), [MEANING], dict[str, dict[str, Setup]]()
    best: tuple[str, Setup] | None = None  # the fastest peer in float32
    for precision in precisions:
        setups = chosen[precision] = {}
        for name in toolkits.choose(session, PEERS):
            of_setup = partial(make_peer, session, settings, data, name, precision)
            setups[name], line = toolkits.find_fastest(
                of_setup, toolkits.TRAINING_SETUPS, session.options.quick
            )
            notes.append(f"{name} {precision}: {line}")
        make = partial(make_peer, session, settings, data)
        peers = [make(name, precision, setup) for name, setup in setups.items()]
        again = [make(best[0], "float32", best[1])] if best else []
        candidates = [*make_trainers(session, data, precision), *peers, *again]
        run(session, data, candidates)
        in_float32 = again[0] if again else None
        if precision == "float32" and (in_float32 := fastest(peers)):
            name = in_float32.name.split()[0]
            best = name, setups[name]
        for c in candidates:
            c.figures |= {"benchmark": precision}
            c.figures |= {BEST_F32: ratio(c, in_float32), BEST: ratio(c, fastest(peers))}
        measured += candidates
    differs = {c.name.split()[0]: c.facts["differs"] for c in measured if "differs" in c.facts}
    notes += [f"{name}: {how}" for name, how in differs.items()]
    options = settings.trainer
    title = (
        f"training: {size_of(settings)}, vocabulary {data.vocab}, "
        f"{options.batch_tokens} tokens a batch ({options.batch_count})"
    )
    facts = {
        "entries": [c.to_json() for c in measured],
        "setups": chosen,
        "model": asdict(settings.model),
        "batch_tokens": options.batch_tokens,
        "vocabulary": data.vocab,
        "updates of a round": data.updates,
    }
    return BenchPart("training", title, list(COLUMNS), rows_of(COLUMNS, measured), notes, facts)


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
    job: dict[str, Any] = {"options": s, "updates": data.updates}
    job |= {"batches": str(data.batches), "label_smoothing": settings.optim.label_smoothing}
    return toolkits.make_peer(session, name, precision, settings, **job)


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
    """nmt's trainer with these settings; if they are a reason, one that cannot run."""
    facts = {"vocab": data.vocab, "tokens": data.tokens, "updates": data.updates}
    run = str(session.new_directory("training") / "run")
    return session.worker(name, "train", settings, store=str(data.store), run=run, **facts)


def run(session: Session, data: SyntheticCorpus, candidates: Sequence[Candidate]) -> None:
    """Let trainings take turns, and compute the seconds of an update."""
    benchmark(candidates, session.options.rounds, WARMUP, session.ends)
    for c in candidates:
        seconds = [r["seconds"] / data.updates for r in c.rounds]
        c.figures[UPDATE] = median(seconds) if seconds else None


def size_of(settings: Settings) -> str:
    m = settings.model
    return (
        f"{m.encoder_layers}+{m.decoder_layers} layers, dim {m.dim}, ff {m.feedforward_dim}, "
        f"{m.heads} heads"
    )
