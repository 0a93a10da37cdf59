"""Decoding: beam search of a forced length through nmt's Translator, and through peers.

Each candidate is measured in two ways: many sentences and one sentence, in a running process.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import Settings
from nmt.errors import UserError
from scripts.bench import corpus, flops
from scripts.bench.candidates import Candidate
from scripts.bench.rounds import Measurement, benchmark, fastest, middle, ratio
from scripts.bench.session import Session
from scripts.bench.setups import Setup, find_fastest, setups_of
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, rates, rows_of
from scripts.bench.training import giga, make_peak, size_of

log = logging.getLogger(__name__)
PEERS = {"ctranslate2_": ("float32", "int8"), "sockeye_": ("float32", "int8"),
         "marian_hf": ("float32",)}  # fmt: skip
PYTORCH = ("sockeye_", "marian_hf")
PRECISIONS = ("float32", "bfloat16", "int8")
STEPS = 32
STEADY, ONE = "steady", "one sentence"
SENTENCES = {STEADY: 256, ONE: 1}
FEW = {STEADY: 8, ONE: 1}  # with --quick
AUTO = ("float32", "int8")  # precisions of --engine auto
TORCH, CT2, CT2_INT8 = (
    f"over {name}" for name in ("the best PyTorch peer", "CTranslate2 float32", "CTranslate2 int8")
)
SHARE = "share of the float32 peak"


class Variant(NamedTuple):
    """nmt with some settings."""

    name: str
    settings: Settings | str  # or why there are none
    workers: int | None = None  # as many as pays
    engine: str = "nmt"


class Task(NamedTuple):
    """What is translated in each way, and by which model."""

    settings: Settings
    vocab: int
    model: Path
    sources: list[list[int]]  # ids, eos included
    counts: dict[str, int]  # sentences of each way, the first of the sources
    files: dict[str, Path]  # the same as text


def show_one(measured: Measurement) -> str:
    rounds = measured.figures[ONE]["rounds"]
    return figure(middle([1000 * r["seconds"] for r in rounds]), "{:.1f}")


COLUMNS: Columns = {
    "steady tokens/s": rates,
    "/torch": figure_of(TORCH, "{:.2f}"),
    "/ct2": figure_of(CT2, "{:.2f}"),
    "/ct2 int8": figure_of(CT2_INT8, "{:.2f}"),
    "of f32": figure_of(SHARE, "{:.1%}"),
    "one, ms": show_one,
    "GB": gigabytes,
}


def force_length(steps: int) -> tuple[str, str]:
    return "decode.max_length_ratio=0", f"decode.max_length_offset={steps}"


def parts(session: Session) -> list[BenchPart]:
    return [measure(session, PRECISIONS)]


def measure(session: Session, precisions: Sequence[str], *overrides: str) -> BenchPart:
    """Measure decoding in some precisions; all share the model."""
    variants = list_variants(session, precisions, *overrides)
    settings = next(v.settings for v in variants if isinstance(v.settings, Settings))
    task = make_task(session, settings)
    ways = [STEADY, ONE]
    candidates = {way: [make_nmt(session, task, way, v) for v in variants] for way in ways}
    notes = []
    for name in session.choose_peers(PEERS):
        for precision in PEERS[name]:
            for way in ways:
                log.info("%s %s: looking for its fastest set-up", name, precision)
                make = partial(make_peer, session, task, way, name, precision)
                setups = setups_of(name, "decoding", session.options.threads, session.device)
                setup, line = find_fastest(make, setups, session.options.quick)
                candidates[way].append(make(setup))
                notes.append(f"{name} {precision}, {way}: {line}")
    rounds, ends = session.options.rounds, session.ends
    peak = [make_peak(session, "float32")]
    steady, (top,) = benchmark(rounds, candidates[STEADY], peak, ends=ends)
    measured = {STEADY: steady}
    (measured[ONE],) = benchmark(rounds, candidates[ONE], ends=ends)
    return report(task, measured, top, notes)


def list_variants(session: Session, precisions: Sequence[str], *overrides: str) -> list[Variant]:
    """nmt in all precisions, and on a CPU also without workers and by CTranslate2."""
    words = [*overrides, *force_length(STEPS)]
    chosen = {p: session.attempt(*words, f"decode.precision={p}") for p in precisions}
    variants = [Variant(f"nmt {p}", settings) for p, settings in chosen.items()]
    if session.device == "cpu":
        first = precisions[0]
        if session.options.threads > 1:
            variants.append(Variant(f"nmt {first} 1-process", chosen[first], workers=1))
        autos = [p for p in AUTO if p in chosen]
        variants += [Variant(f"nmt auto {p}", chosen[p], engine="auto") for p in autos]
    return variants


def make_task(session: Session, settings: Settings) -> Task:
    counts = FEW if session.options.quick else SENTENCES
    directory, side = session.new_directory("decoding"), corpus.side(session.vocab)
    lines = corpus.text(counts[STEADY], session.vocab, settings.seed)
    return Task(
        settings,
        session.vocab,
        corpus.write_model(directory, settings, session.vocab),
        [side.ids(line) for line in lines],
        counts,
        {way: corpus.write(directory / way, lines[:count]) for way, count in counts.items()},
    )


def make_nmt(session: Session, task: Task, way: str, variant: Variant) -> Candidate:
    job = {"workers": variant.workers, "engine": variant.engine}
    job |= {"model": str(task.model), "lines": str(task.files[way])}
    return session.worker(variant.name, "translate", variant.settings, **job)


def make_peer(
    session: Session, task: Task, way: str, name: str, precision: str, setup: Setup
) -> Candidate:
    """A peer with a model of the same size; CTranslate2 with the same model."""
    job: dict[str, Any] = {"sources": task.sources[: task.counts[way]], "steps": STEPS}
    job |= {"beam": task.settings.decode.beam_size, "alpha": task.settings.decode.alpha}
    if name == "ctranslate2_":
        try:
            job |= export(task, precision)
        except UserError as error:
            return Candidate(f"{name} {precision}", str(error))
    else:  # written by its process, in the warm-up
        job["converted"] = str(session.new_directory("converted") / "model")
    return session.peer(name, precision, task.settings, part="decoding", options=setup, **job)


def export(task: Task, precision: str) -> dict[str, Any]:
    """The model as nmt-export writes it for CTranslate2, and what its ids are called there.

    Raises UserError where CTranslate2 is not installed here, or cannot express the model.
    """
    from nmt.exchange import ctranslate2_write
    from nmt.exchange.interface import CTRANSLATE2

    CTRANSLATE2.require("ctranslate2_")
    trained = modeldir.load(task.model)
    naming, sites = ctranslate2_write.fit(trained)
    directory = task.model.with_name(f"ctranslate2-{precision}")
    if not directory.exists():
        ctranslate2_write.write_weights(trained, naming, sites, directory, precision)
    return {"exported": str(directory), "pieces": naming.target.names}


def report(
    task: Task, measured: dict[str, list[Measurement]], top: Measurement, setups: list[str]
) -> BenchPart:
    """The table; `setups` are those of the peers, in a line each."""
    steady, beam = measured[STEADY], task.settings.decode.beam_size
    agreement = compare_with_ctranslate2(steady)
    add_figures(task, measured, top)
    notes = [
        f"steady: {len(task.sources)} sentences of mean {corpus.MEAN} pieces in a running process; "
        f"one: the first of them alone, of {len(task.sources[0]) - 1} pieces",
        "GB is the first process's own; workers share its model, and have activations beside it",
        f"matmul peak in the same rounds: float32 {giga(top)} GFLOP/s",
        *agreement,
        *setups,
        *(f"{m.name}: {m.facts['differs']}" for m in steady if "differs" in m.facts),
    ]
    title = (
        f"decoding: {size_of(task.settings)}, vocabulary {task.vocab}, beam {beam}, "
        f"{STEPS} target tokens forced"
    )
    facts = {
        "entries": [m.to_json() for m in steady],
        "model": asdict(task.settings.model),
        "beam": beam,
        "sentences": len(task.sources),
        "peak": top.to_json(),
    }
    return BenchPart("decoding", title, list(COLUMNS), rows_of(COLUMNS, steady), notes, facts)


def add_figures(task: Task, measured: dict[str, list[Measurement]], top: Measurement) -> None:
    """Compare the steady rates with the peers' and the peak; the other ways stand beside them."""
    steady = measured[STEADY]
    by_name = {m.name: m for m in steady}
    baselines = {
        TORCH: fastest([m for m in steady if m.name.split()[0] in PYTORCH]),
        CT2: by_name.get("ctranslate2_ float32"),
        CT2_INT8: by_name.get("ctranslate2_ int8"),
    }
    decode, lengths = task.settings.decode, [len(source) for source in task.sources]
    work = flops.searching(task.settings.model, task.vocab, lengths, STEPS, decode.beam_size)
    for m in steady:
        shares = [work / seconds / max(top.rates) for seconds in m.seconds if top.rounds]
        m.figures = {name: ratio(m, baseline) for name, baseline in baselines.items()}
        m.figures[SHARE] = middle(shares)
    for way, measurements in measured.items():
        for m in measurements:
            for answer in m.rounds:
                answer.pop("digests", None)
            if way != STEADY:
                by_name[m.name].figures[way] = m.to_json()
                by_name[m.name].failed = by_name[m.name].failed or m.failed


def compare_with_ctranslate2(measured: Sequence[Measurement]) -> list[str]:
    """How many translations are CTranslate2's, to the last token: the same work was done."""
    digests = {m.name: m.last("digests") for m in measured}
    notes = []
    for name, of_nmt in digests.items():
        reference = digests.get(f"ctranslate2_ {name.split()[-1]}")
        if name.startswith("nmt ") and of_nmt and reference:
            same = sum(a == b for a, b in zip(of_nmt, reference, strict=True))
            notes.append(f"{name}: {same} of {len(of_nmt)} translations equal CTranslate2's")
    return notes
