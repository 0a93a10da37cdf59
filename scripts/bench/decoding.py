"""Decoding: beam search of a forced length by nmt's Translator and by CTranslate2.

Each candidate is measured in two ways: many sentences and one sentence, in a running process.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import Settings
from nmt.errors import UserError
from scripts.bench import corpus, toolkits
from scripts.bench.rounds import Candidate, benchmark, ratio
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, rates, rows_of
from scripts.bench.toolkits import Setup
from scripts.bench.training import size_of

log = logging.getLogger(__name__)
PEER = "ctranslate2_"
PRECISIONS = ("float32", "bfloat16", "int8")
STEPS = 32
STEADY, ONE = "steady", "one sentence"
SENTENCES = {STEADY: 256, ONE: 1}
FEW = {STEADY: 8, ONE: 1}  # with --quick
INT8_TOO = ("float32", "int8")  # precisions of CTranslate2, and of --engine auto
CT2, CT2_INT8 = "over CTranslate2 float32", "over CTranslate2 int8"


class Variant(NamedTuple):
    """nmt with some settings."""

    name: str
    settings: Settings | str  # or why there are none
    workers: int | None = None  # as many as pays
    engine: str = "nmt"


class Task(NamedTuple):
    """What is translated in each way, and by which model."""

    settings: Settings
    model: Path
    sources: list[list[int]]  # ids, eos included
    counts: dict[str, int]  # sentences of each way, the first of the sources
    files: dict[str, Path]  # the same as text


def show_one(c: Candidate) -> str:
    seconds = [r["seconds"] for r in c.figures[ONE]["rounds"]]
    return figure(1000 * median(seconds) if seconds else None, "{:.1f}")


COLUMNS: Columns = {
    "steady tokens/s": rates,
    "/ct2": figure_of(CT2, "{:.2f}"),
    "/ct2 int8": figure_of(CT2_INT8, "{:.2f}"),
    "one, ms": show_one,
    "GB": gigabytes,
}


def force_length(steps: int) -> tuple[str, str]:
    return "decode.max_length_ratio=0", f"decode.max_length_offset={steps}"


def measure(session: Session, precisions: Sequence[str] = PRECISIONS, *overrides: str) -> BenchPart:
    """Measure decoding in some precisions; all share the model."""
    variants = list_variants(session, precisions, *overrides)
    settings = next(v.settings for v in variants if isinstance(v.settings, Settings))
    task = make_task(session, settings)
    candidates = {way: [make_nmt(session, task, way, v) for v in variants] for way in SENTENCES}
    notes = []
    setups = toolkits.list_decoding_setups(session.options.threads, session.device)
    for precision in INT8_TOO if toolkits.choose(session, [PEER]) else ():
        for way in SENTENCES:
            log.info("%s %s: looking for its fastest settings", PEER, precision)
            make = partial(make_peer, session, task, way, precision)
            setup, line = toolkits.find_fastest(make, setups, session.options.quick)
            candidates[way].append(make(setup))
            notes.append(f"{PEER} {precision}, {way}: {line}")
    for way in SENTENCES:
        benchmark(candidates[way], session.options.rounds, ends=session.ends)
    return report(session, task, candidates, notes)


def list_variants(session: Session, precisions: Sequence[str], *overrides: str) -> list[Variant]:
    """nmt in all precisions, and on a CPU also without workers and by CTranslate2."""
    words = [*overrides, *force_length(STEPS)]
    chosen = {p: session.settings_or_reason(*words, f"decode.precision={p}") for p in precisions}
    variants = [Variant(f"nmt {p}", settings) for p, settings in chosen.items()]
    if session.device == "cpu":
        first = precisions[0]
        if session.options.threads > 1:
            variants.append(Variant(f"nmt {first} 1-process", chosen[first], workers=1))
        autos = [p for p in INT8_TOO if p in chosen]
        variants += [Variant(f"nmt auto {p}", chosen[p], engine="auto") for p in autos]
    return variants


def make_task(session: Session, settings: Settings) -> Task:
    counts = FEW if session.options.quick else SENTENCES
    directory, side = session.new_directory("decoding"), corpus.side(session.vocab)
    lines = corpus.text(counts[STEADY], session.vocab, settings.seed)
    return Task(
        settings,
        corpus.write_model(directory, settings, session.vocab),
        [side.ids(line) for line in lines],
        counts,
        {way: corpus.write(directory / way, lines[:count]) for way, count in counts.items()},
    )


def make_nmt(session: Session, task: Task, way: str, variant: Variant) -> Candidate:
    job = {"workers": variant.workers, "engine": variant.engine}
    job |= {"model": str(task.model), "lines": str(task.files[way])}
    return session.worker(variant.name, "translate", variant.settings, **job)


def make_peer(session: Session, task: Task, way: str, precision: str, setup: Setup) -> Candidate:
    """CTranslate2 with the same model."""
    job: dict[str, Any] = {"sources": task.sources[: task.counts[way]], "steps": STEPS}
    job |= {"beam": task.settings.decode.beam_size, "alpha": task.settings.decode.alpha}
    try:
        job |= export(task, precision)
    except UserError as error:
        return Candidate(f"{PEER} {precision}", failed=str(error))
    return toolkits.make_peer(session, PEER, precision, task.settings, options=setup, **job)


def export(task: Task, precision: str) -> dict[str, Any]:
    """The model as nmt-export writes it for CTranslate2, and what its ids are called there.

    Raises UserError where CTranslate2 is not installed here, or cannot express the model.
    """
    from nmt.exchange import ctranslate2_write
    from nmt.exchange.interface import CTRANSLATE2

    CTRANSLATE2.require(PEER)
    trained = modeldir.load(task.model)
    naming, sites = ctranslate2_write.fit(trained)
    directory = task.model.with_name(f"ctranslate2-{precision}")
    if not directory.exists():
        ctranslate2_write.write_weights(trained, naming, sites, directory, precision)
    return {"exported": str(directory), "pieces": naming.target.names}


def report(
    session: Session, task: Task, candidates: dict[str, list[Candidate]], setups: list[str]
) -> BenchPart:
    """The table; `setups` are those of the peers, in a line each."""
    steady, beam = candidates[STEADY], task.settings.decode.beam_size
    add_figures(steady, candidates[ONE])
    notes = [
        f"steady: {len(task.sources)} sentences of mean {corpus.MEAN} pieces in a running process; "
        f"one: the first of them alone, of {len(task.sources[0]) - 1} pieces",
        "GB is of the first process; workers share its model and need memory for activations",
        *setups,
    ]
    title = (
        f"decoding: {size_of(task.settings)}, vocabulary {session.vocab}, beam {beam}, "
        f"{STEPS} target tokens forced"
    )
    facts = {
        "entries": [c.to_json() for c in steady],
        "model": asdict(task.settings.model),
        "beam": beam,
        "sentences": len(task.sources),
    }
    return BenchPart("decoding", title, list(COLUMNS), rows_of(COLUMNS, steady), notes, facts)


def add_figures(steady: list[Candidate], single: list[Candidate]) -> None:
    """Compare the steady rates with those of peers, and add the rounds of a single sentence."""
    by_name = {c.name: c for c in steady}
    baselines = {CT2: by_name.get(f"{PEER} float32"), CT2_INT8: by_name.get(f"{PEER} int8")}
    for c, one in zip(steady, single, strict=True):
        c.figures = {name: ratio(c, baseline) for name, baseline in baselines.items()}
        c.figures[ONE] = one.to_json()
        c.failed = c.failed or one.failed
