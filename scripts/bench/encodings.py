"""Every encoding's training step over that of one to compare with: time and memory."""

from collections import defaultdict
from typing import Any

from nmt import build
from nmt.config.catalog import folders_in, options_of
from nmt.config.hydra_conf import parse
from nmt.config.settings import Settings
from nmt.system.resources import memory_of
from scripts.bench.rounds import Measurement, benchmark, middle, ratio, to_json
from scripts.bench.session import Session
from scripts.bench.table import GIGA, BenchPart, figure, gigabytes
from scripts.bench.training import size, trainer, training_corpus

EACH = 2.5 * GIGA  # bytes that a candidate takes at most; the small model, 100 tokens
MOST = 9  # candidates beside the one they are compared with: more would wait long
LENGTHS: dict[str, dict[str, Any]] = {
    "mean 26": {},
    "100 tokens": {"mean": 99, "equal": True},  # and eos
}
PAIRS = 4000
TIME, MEMORY = "time over", "memory over"


def parts(session: Session) -> list[BenchPart]:
    """Measure each encoding against the one that nmt-train takes, at two lengths of sentences."""
    plain = session.settings()
    baseline = " ".join(plain.encoding) or "none"
    names = session.encodings or options_of("encoding", folders_in(parse(session.overrides)))
    chosen = {n: session.attempt(f"encoding={n}") for n in names if n != baseline}
    room = at_once(memory_of())
    measured: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for length, kind in LENGTHS.items():
        options = ({} if session.quick else {"pairs": PAIRS}) | {"updates": 1} | kind
        for start in range(0, len(chosen), room):
            group = dict(list(chosen.items())[start : start + room])
            columns = frozenset[str]().union(*map(columns_of, group.values()))
            plain_data, data = (
                training_corpus(session, plain, columns=some, **options)
                for some in (frozenset(), columns)
            )
            candidates = [trainer(session, name, s, data) for name, s in group.items()]
            (first,), others = benchmark(
                session.rounds, [trainer(session, baseline, plain, plain_data)], candidates
            )
            for m in others:
                measured[m.name][length] = m
                more = m.memory / first.memory if m.memory and first.memory else None
                m.figures = {TIME: ratio(first, m), MEMORY: more}
                m.failed = m.failed or first.failed
    return [report(baseline, plain, measured)]


def at_once(memory: int) -> int:
    """How many encodings fit beside the baseline into so many bytes of memory."""
    return max(1, min(MOST, int(memory / EACH) - 1))


def columns_of(settings: Settings | str) -> frozenset[str]:
    """The columns of the source that a model with these settings reads."""
    if isinstance(settings, str):
        return frozenset()
    return frozenset(build.meta_model(settings, 8, 8).columns)


def report(
    baseline: str, plain: Settings, measured: dict[str, dict[str, Measurement]]
) -> BenchPart:
    """The table: time and memory over the baseline of the same rounds."""
    rows = []
    for name, by_length in measured.items():
        cells = [cell for m in by_length.values() for cell in _cells(m)]
        reasons = [m.failed for m in by_length.values() if m.failed]
        rows.append([name, *cells, reasons[0] if reasons else ""])
    return BenchPart(
        "encodings",
        f"a training step of each encoding over one of {baseline}: {size(plain)}, "
        f"{plain.trainer.batch_tokens} tokens a batch",
        [f"{what}, {length}" for length in LENGTHS for what in ("time", "s", "memory", "GB")],
        rows,
        [f"time and memory: over those of the same rounds with {baseline}"],
        {
            "baseline": baseline,
            "entries": [
                {"name": name} | to_json(by_length) for name, by_length in measured.items()
            ],
        },
    )


def _cells(m: Measurement) -> list[str]:
    time, memory = (figure(m.figures[name], "{:.2f}") for name in (TIME, MEMORY))
    return [time, figure(middle(m.seconds), "{:.3f}"), memory, gigabytes(m)]
