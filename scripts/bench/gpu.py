"""The bench on a GPU, within minutes: correctness, sizes, decoding, lengths up to 4096."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from nmt.config.settings import Settings
from scripts.bench import correctness, decoding
from scripts.bench.rounds import ratio
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart, Columns, figure_of, gigabytes, rates, rows_of
from scripts.bench.training import UPDATE, make_corpus, make_trainer, measure_trainings, show_share

MINUTES = 8.0
VOCAB = 32_000
LENGTHS = (25, 64, 128, 256, 512, 1024, 2048, 4096)
BATCH = 16_384  # tokens of a batch whose sentences have one length, eos apart
BOTH = ("bfloat16", "bfloat16 relative")
BESIDE = "over the first"
COLUMNS: Columns = {
    "target tokens/s": rates,
    "/first": figure_of(BESIDE, "{:.2f}"),
    "MFU": show_share,
    "s/update": figure_of(UPDATE, "{:.4f}"),
    "GB": gigabytes,
}


class GpuBenchmark(NamedTuple):
    """Trainings that take turns, and are compared with the first of them."""

    title: str
    model: str
    tokens: int  # of a batch
    choices: Sequence[str]  # PRECISION, or PRECISION ENCODING
    kind: dict[str, Any]  # of the corpus


def check(session: Session) -> BenchPart:
    (part,) = correctness.parts(session)
    return part


def decode(session: Session) -> BenchPart:
    sized = () if session.options.quick else ("model=base",)
    return decoding.measure(session, ("float32", "bfloat16"), *sized)


def train_sizes(session: Session) -> BenchPart:
    quick, benchmarks = session.options.quick, []
    tokens = 400 if quick else 25_000
    for size in ("base", "big"):
        title = f"training, {'tiny' if quick else size}, {tokens} tokens"
        benchmarks.append(GpuBenchmark(title, size, tokens, (*BOTH, "float32"), {}))
    return measure(session, "sizes", benchmarks)


def train_lengths(session: Session) -> BenchPart:
    """Training on sentences of one length, as many as make a batch of equal size."""
    quick, benchmarks = session.options.quick, []
    for length in LENGTHS[:2] if quick else LENGTHS:
        title = f"length {length}, {'tiny' if quick else 'base'}"
        sentences = 2 if quick else max(1, BATCH // length)
        kind = {"mean": length, "equal": True, "pairs": 64 if quick else 4096}
        benchmarks.append(GpuBenchmark(title, "base", sentences * (length + 1), BOTH, kind))
    return measure(session, "lengths", benchmarks)


# In the order in which they run: what matters less, or is measured in many steps, comes last.
PARTS: dict[str, Callable[[Session], BenchPart]] = {
    "correctness": check,
    "sizes": train_sizes,
    "decoding": decode,
    "lengths": train_lengths,
}


def parts(session: Session, chosen: Sequence[str]) -> Iterator[BenchPart]:
    """Run the chosen parts, each with an equal share of the time that is left.

    Tables and JSON name what was left out for want of time.
    """
    names = [name for name in PARTS if name in chosen]
    shares = session.within(60 * MINUTES).shares(len(names))
    for name, share in zip(names, shares, strict=True):
        if share.is_over:
            yield BenchPart(name, f"{name}: {LEFT_OUT}", (), [], [], {"left_out": [name]})
        else:
            yield PARTS[name](share)


def measure(session: Session, name: str, benchmarks: Iterable[GpuBenchmark]) -> BenchPart:
    rows, facts, left_out = [], [], []
    for planned in benchmarks:
        if session.is_over:
            left_out.append(planned.title)
            continue
        more, fact = measure_one(session, planned)
        rows += more
        facts.append(fact)
    title = f"training on {session.device}: {name}"
    notes = ["MFU: model operations over the matmul peak in the same number format and rounds"]
    notes += [f"{title}: {LEFT_OUT}" for title in left_out]
    facts_and_gaps = {"benchmarks": facts, "left_out": left_out}
    return BenchPart(name, title, list(COLUMNS), rows, notes, facts_and_gaps)


def measure_one(session: Session, planned: GpuBenchmark) -> tuple[list[list[str]], dict[str, Any]]:
    quick = session.options.quick
    attempts: dict[str, Settings | str] = {}
    for choice in planned.choices:
        precision, *encodings = choice.split()
        attempts[choice] = session.attempt(
            *(() if quick else (f"model={planned.model}",)),
            *(f"trainer.batch_tokens={planned.tokens}", f"trainer.precision={precision}"),
            *(f"encoding={name}" for name in encodings),
        )
    able = [settings for settings in attempts.values() if isinstance(settings, Settings)]
    if not able:
        why = "; ".join(dict.fromkeys(map(str, attempts.values())))
        row = [planned.title, *("-" for _ in COLUMNS), why]
        return [row], {"title": planned.title, "failed": why}
    vocab = 200 if quick else VOCAB
    data = make_corpus(session, able[0], vocab=vocab, updates=2, **planned.kind)
    (measured,), peaks = measure_trainings(
        session,
        data,
        [choice.split()[0] for choice in attempts],
        [make_trainer(session, choice, settings, data) for choice, settings in attempts.items()],
    )
    for m in measured:
        m.figures[BESIDE] = ratio(m, measured[0])
    rows = [[f"{planned.title}: {name}", *cells] for name, *cells in rows_of(COLUMNS, measured)]
    entries, tops = [m.to_json() for m in measured], {p: m.to_json() for p, m in peaks.items()}
    return rows, {"title": planned.title, "entries": entries, "peaks": tops}
