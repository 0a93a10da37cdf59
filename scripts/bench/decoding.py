"""Decoding: beam search of a forced length through nmt's Translator, and through peers."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import Settings
from nmt.errors import UserError
from scripts.bench import corpus, flops, setups, weights
from scripts.bench.candidates import Candidate, Command
from scripts.bench.rounds import Measurement, benchmark, fastest, middle, ratio
from scripts.bench.session import Session
from scripts.bench.setups import Options
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, ranged, rates
from scripts.bench.training import giga, peak, size

log = logging.getLogger(__name__)
PEERS = {"ctranslate2_": ("float32", "int8"), "sockeye_": ("float32", "int8"),
         "marian_hf": ("float32",)}  # fmt: skip
PYTORCH = ("sockeye_", "marian_hf")
PRECISIONS = ("float32", "bfloat16", "int8")
SENTENCES, STEPS = 256, 32
WHOLE = 64  # sentences of a whole process
ALONE = "1-process"  # ends the name of nmt without workers
AUTO = ("float32", "int8")  # precisions of --engine auto
TORCH, CT2, CT2_INT8 = (
    f"over {name}" for name in ("the best PyTorch peer", "CTranslate2 float32", "CTranslate2 int8")
)
SHARE = "share of the float32 peak"


class TranslationTask(NamedTuple):
    """What is translated, and by which model."""

    settings: Settings
    vocab: int
    model: Path
    lines: Path
    sources: list[list[int]]  # the same in ids, eos included
    first_lines: Path  # for a whole process
    few: int  # lines of it
    first_line: Path  # for one sentence at a time


def forced(steps: int) -> tuple[str, str]:
    """Overrides that make each translation `steps` tokens long."""
    return "decode.max_length_ratio=0", f"decode.max_length_offset={steps}"


def parts(session: Session) -> list[BenchPart]:
    """Measure beam search in every number format that nmt has, and by the peers."""
    return [part(session, PRECISIONS)]


def part(session: Session, precisions: Sequence[str], *overrides: str) -> BenchPart:
    """Measure decoding in some precisions; all share the model.

    Steady rounds first, then whole processes on a few sentences unless they are left out.
    """
    chosen = {
        f"nmt {precision}": session.attempt(
            *overrides, *forced(STEPS), f"decode.precision={precision}"
        )
        for precision in precisions
    }
    task = _task(session, next(s for s in chosen.values() if not isinstance(s, str)))
    model, lines = task.model, task.lines
    steady = [translator(session, name, s, model, lines) for name, s in chosen.items()]
    single = [translator(session, name, s, model, task.first_line) for name, s in chosen.items()]
    whole = [_command(session, name, s, task) for name, s in chosen.items()]
    if session.threads > 1 and session.device == "cpu":
        name, first = f"nmt {precisions[0]} {ALONE}", next(iter(chosen.values()))
        steady.append(translator(session, name, first, model, lines, workers=1))
        single.append(translator(session, name, first, model, task.first_line, workers=1))
        whole.append(_command(session, name, first, task, "--workers", "1"))
    if session.device == "cpu":  # exports are made at the start of the steady ones
        for precision in AUTO:
            if (settings := chosen.get(f"nmt {precision}")) is not None:
                name = f"nmt auto {precision}"
                steady.append(translator(session, name, settings, model, lines, engine="auto"))
                one = translator(session, name, settings, model, task.first_line, engine="auto")
                single.append(one)
                whole.append(_command(session, name, settings, task, "--engine", "auto"))
    notes = []

    def peer(
        name: str, precision: str, units: int | None, count: int, options: Options
    ) -> Candidate:
        decode, sources = task.settings.decode, task.sources[:count]
        model = {}
        if name == "ctranslate2_":
            try:
                model = exported(task, precision)
            except UserError as error:
                return Candidate(f"{name} {precision}", str(error))
        return session.peer(
            name, precision, task.settings, units, part="decoding", options=options, **model,
            sources=sources, steps=STEPS, beam=decode.beam_size, alpha=decode.alpha,
        )  # fmt: skip

    ways: list[tuple[str, list[Candidate], int | None, int]] = [
        ("steady", steady, None, len(task.sources)), ("one sentence", single, None, 1)
    ]  # fmt: skip
    ways += [] if session.steady else [("whole", whole, task.few * STEPS, task.few)]
    for name in session.peers_among(PEERS):
        for precision in PEERS[name]:
            for way, candidates, units, count in ways:
                log.info("%s %s: looking for its fastest set-up", name, precision)
                make = partial(peer, name, precision, units, count)
                options, line = setups.best(session, name, "decoding", make)
                candidates.append(make(options))
                notes.append(f"{name} {precision}, {way}: {line}")
    peaks = [peak(session, "float32")]
    measured, (top,) = benchmark(session.rounds, steady, peaks, ends=session.ends)
    (singles,) = benchmark(session.rounds, single, ends=session.ends)
    warmup = 0 if session.quick else 1
    whole = [] if session.steady else whole
    (processes,) = benchmark(min(session.rounds, 3), whole, warmup=warmup, ends=session.ends)
    return report(task, measured, top, singles, processes, notes)


def exported(task: TranslationTask, precision: str) -> dict[str, Any]:
    """The model as nmt-export writes it for CTranslate2, and what its ids are called there.

    Raises UserError where CTranslate2 is not installed here, or cannot express the model.
    """
    from nmt.exchange.ctranslate2_adapter import WeightsAdapter

    WeightsAdapter.library.require("ctranslate2_")
    adapter = WeightsAdapter(modeldir.load(task.model))
    place = task.model.with_name(f"ctranslate2-{precision}")
    if not place.exists():
        adapter.written(place, precision)
    return {"exported": str(place), "pieces": adapter.naming.target}


def translator(
    session: Session,
    name: str,
    settings: Settings | str,
    model: Path,
    lines: Path,
    workers: int | None = None,
    engine: str = "nmt",
) -> Candidate:
    """nmt's Translator, which translates the lines in each round; by as many workers as pays."""
    return session.worker(
        name,
        "translate_worker",
        settings,
        model=str(model),
        lines=str(lines),
        workers=workers,
        engine=engine,
    )


def _task(session: Session, settings: Settings) -> TranslationTask:
    """Write the model and the lines that all translate."""
    many, few = (8, 4) if session.quick else (SENTENCES, WHOLE)
    place, side = session.place("decoding"), corpus.side(session.vocab)
    text = corpus.text(many, session.vocab, settings.seed)
    return TranslationTask(
        settings,
        session.vocab,
        weights.make(place, settings, session.vocab),
        corpus.write(place / "lines", text),
        [side.ids(line) for line in text],
        corpus.write(place / "first-lines", text[:few]),
        few,
        corpus.write(place / "first-line", text[:1]),
    )


def _command(
    session: Session, name: str, settings: Settings | str, task: TranslationTask, *more: str
) -> Candidate:
    """The command that a user types, on a few sentences."""
    if isinstance(settings, str):
        return Candidate(name, settings)
    trained = asdict(task.settings.decode)
    argv = [
        *(sys.executable, "-m", "nmt.cli.translate", str(task.model), str(task.first_lines)),
        *("-o", str(session.directory / "whole.txt"), "--device", session.device),
        *("--threads", str(session.threads), *more),
        *(f"decode.{k}={v}" for k, v in asdict(settings.decode).items() if v != trained[k]),
    ]
    return Command(name, argv, session.threads, task.few * STEPS)


def report(
    task: TranslationTask,
    measured: list[Measurement],
    top: Measurement,
    single: list[Measurement],
    whole: list[Measurement],
    setups: Sequence[str],
) -> BenchPart:
    """The table; `setups` are those of the peers, in a line each."""
    beam = task.settings.decode.beam_size
    by_name = {m.name: m for m in measured}
    baselines = {
        TORCH: fastest([m for m in measured if m.name.split()[0] in PYTORCH]),
        CT2: by_name.get("ctranslate2_ float32"),
        CT2_INT8: by_name.get("ctranslate2_ int8"),
    }
    lengths = list(map(len, task.sources))
    work = flops.searching(task.settings.model, task.vocab, lengths, STEPS, beam)
    agreement = _agreement(measured)
    processes = dict(zip(by_name, whole, strict=True)) if whole else {}
    one = dict(zip(by_name, single, strict=True))
    for m in measured:
        for answer in [*m.rounds, *one[m.name].rounds]:
            answer.pop("digests", None)
        shares = [work / seconds / max(top.rates) for seconds in m.seconds if top.rounds]
        m.figures = {name: ratio(m, baseline) for name, baseline in baselines.items()}
        m.figures |= {SHARE: middle(shares)}
        m.figures |= {"one sentence": one[m.name].to_json()}
        m.figures |= {"whole": processes[m.name].to_json()} if processes else {}
    columns: Columns = {
        "steady tokens/s": rates,
        "/torch": figure_of(TORCH, "{:.2f}"),
        "/ct2": figure_of(CT2, "{:.2f}"),
        "/ct2 int8": figure_of(CT2_INT8, "{:.2f}"),
        "of f32": figure_of(SHARE, "{:.1%}"),
        "one, ms": lambda m: figure(middle([1000 * s for s in one[m.name].seconds]), "{:.1f}"),
        "GB": gigabytes,
    }
    if processes:
        columns |= {
            f"whole {task.few}, s": lambda m: ranged(processes[m.name].seconds, "{:.2f}"),
            "tokens/s": lambda m: figure(middle(processes[m.name].rates), "{:,.0f}"),
        }
    notes = [
        f"steady: {len(task.sources)} sentences of mean {corpus.MEAN} pieces in a running process; "
        f"one: the first of them alone, of {lengths[0] - 1} pieces; "
        f"whole: {task.few} sentences, from the start of the process to its end",
        "GB is the first process's own; workers share its model, and have activations beside it",
        f"matmul peak in the same rounds: float32 {giga(top)} GFLOP/s",
        *agreement,
        *setups,
        *(f"{m.name}: {m.facts['differs']}" for m in measured if "differs" in m.facts),
    ]
    part = BenchPart.of(
        "decoding",
        f"decoding: {size(task.settings)}, vocabulary {task.vocab}, beam {beam}, "
        f"{STEPS} target tokens forced",
        columns,
        measured,
        notes,
        model=asdict(task.settings.model),
        beam=beam,
        sentences=len(task.sources),
        peak=top.to_json(),
    )
    for row, process in zip(part.rows, whole, strict=False):
        row[-1] = row[-1] or process.failed or ""
    return part


def _agreement(measured: Sequence[Measurement]) -> list[str]:
    """How many translations are CTranslate2's, to the last token: the same work was done."""
    digests = {m.name: m.last("digests") for m in measured}
    notes = []
    for name, mine in digests.items():
        theirs = digests.get(f"ctranslate2_ {name.split()[-1]}")
        if name.startswith("nmt ") and mine and theirs:
            same = sum(a == b for a, b in zip(mine, theirs, strict=True))
            notes.append(f"{name}: {same} of {len(mine)} translations equal CTranslate2's")
    return notes
