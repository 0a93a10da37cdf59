"""Every encoding's training step over that of one to compare with: time and memory."""

from collections import defaultdict
from typing import Any

from nmt import build
from nmt.config.settings import Settings
from nmt.system.resources import memory_of
from scripts.bench.rounds import Measurement, benchmark, middle, ratio
from scripts.bench.session import Session
from scripts.bench.table import GIGA, BenchPart, figure, gigabytes
from scripts.bench.training import make_corpus, make_trainer, size_of

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
    names = [name for name in session.encodings() if name != baseline]
    chosen = {name: session.attempt(f"encoding={name}") for name in names}
    room = count_at_once(memory_of())
    measured: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for length, kind in LENGTHS.items():
        options = ({} if session.options.quick else {"pairs": PAIRS}) | {"updates": 1} | kind
        for start in range(0, len(names), room):
            group = {name: chosen[name] for name in names[start : start + room]}
            columns = frozenset[str]().union(*map(columns_of, group.values()))
            plain_data = make_corpus(session, plain, **options)
            data = make_corpus(session, plain, columns=columns, **options)
            (first,), others = benchmark(
                session.options.rounds,
                [make_trainer(session, baseline, plain, plain_data)],
                [make_trainer(session, name, settings, data) for name, settings in group.items()],
            )
            for m in others:
                measured[m.name][length] = m
                more = m.memory / first.memory if m.memory and first.memory else None
                m.figures = {TIME: ratio(first, m), MEMORY: more}
                m.failed = m.failed or first.failed
    return [report(baseline, plain, measured)]


def count_at_once(memory: int) -> int:
    """How many encodings fit beside the baseline into so many bytes of memory."""
    return max(1, min(MOST, int(memory / EACH) - 1))


def columns_of(settings: Settings | str) -> frozenset[str]:
    if isinstance(settings, str):
        return frozenset()
    return frozenset(build.meta_model(settings, 8, 8).columns)


def report(
    baseline: str, plain: Settings, measured: dict[str, dict[str, Measurement]]
) -> BenchPart:
    rows, entries = [], []
    for name, by_length in measured.items():
        row = [name]
        for m in by_length.values():
            time, memory = (figure(m.figures[what], "{:.2f}") for what in (TIME, MEMORY))
            row += [time, figure(middle(m.seconds), "{:.3f}"), memory, gigabytes(m)]
        row.append(next((m.failed for m in by_length.values() if m.failed), ""))
        rows.append(row)
        entries.append({"name": name} | {length: m.to_json() for length, m in by_length.items()})
    title = (
        f"a training step of each encoding over one of {baseline}: {size_of(plain)}, "
        f"{plain.trainer.batch_tokens} tokens a batch"
    )
    columns = [f"{what}, {length}" for length in LENGTHS for what in ("time", "s", "memory", "GB")]
    notes = [f"time and memory: over those of the same rounds with {baseline}"]
    facts = {"baseline": baseline, "entries": entries}
    return BenchPart("encodings", title, columns, rows, notes, facts)
