"""The bench on a GPU, within minutes: correctness, sizes, decoding, lengths up to 4096."""

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, NamedTuple

from nmt.config.settings import Settings
from scripts.bench import correctness, decoding
from scripts.bench.rounds import ratio, to_json
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart, Columns, figure_of, gigabytes, rates, rows
from scripts.bench.training import UPDATE, mfu, trainer, training_corpus, trainings

MINUTES = 8.0
VOCAB = 32_000
LENGTHS = (25, 64, 128, 256, 512, 1024, 2048, 4096)
SIZES = ("base", "big")
BOTH = ("bfloat16", "bfloat16 relative")
BESIDE = "over the first"
COLUMNS: Columns = {
    "target tokens/s": rates,
    "/first": figure_of(BESIDE, "{:.2f}"),
    "MFU": mfu,
    "s/update": figure_of(UPDATE, "{:.4f}"),
    "GB": gigabytes,
}


class GpuBenchmark(NamedTuple):
    """Trainings that take turns, and are compared with the first of them."""

    title: str
    size: str  # of the model
    tokens: int  # of a batch
    choices: tuple[str, ...]  # PRECISION, or PRECISION ENCODING
    kind: dict[str, Any]  # of the corpus


def sizes(quick: bool) -> Iterator[GpuBenchmark]:
    """Sentences of all lengths, models of two sizes."""
    tokens = 400 if quick else 25_000
    for size in SIZES:
        title = f"training, {'tiny' if quick else size}, {tokens} tokens"
        yield GpuBenchmark(title, size, tokens, (*BOTH, "float32"), {})


def lengths(quick: bool) -> Iterator[GpuBenchmark]:
    """Sentences of one length, as many as make a batch of equal size."""
    for length in LENGTHS[:2] if quick else LENGTHS:
        title, size = f"length {length}, {'tiny' if quick else 'base'}", "base"
        tokens = (2 if quick else max(1, 16_384 // length)) * (length + 1)
        kind = {"mean": length, "equal": True, "pairs": 64 if quick else 4096}
        yield GpuBenchmark(title, size, tokens, BOTH, kind)


def settings_of(session: Session, planned: GpuBenchmark, choice: str) -> Settings | str:
    """The settings of one training, or why there are none."""
    precision, *encodings = choice.split()
    return session.attempt(
        *(() if session.quick else (f"model={planned.size}",)),
        *(f"trainer.batch_tokens={planned.tokens}", f"trainer.precision={precision}"),
        *(f"encoding={name}" for name in encodings),
    )


def parts(session: Session, chosen: Container[str]) -> Iterator[BenchPart]:
    """Run the chosen parts, each with an equal share of the time that is left.

    Tables and JSON name what was left out for want of time.
    """
    names = [name for name in PARTS if name in chosen]
    for name, own in zip(names, session.within(60 * MINUTES).shares(len(names)), strict=True):
        if own.is_over:
            yield BenchPart(name, f"{name}: {LEFT_OUT}", (), [], [], {"left_out": [name]})
        else:
            yield from PARTS[name](own)


def _decoding(session: Session) -> Iterator[BenchPart]:
    sized = () if session.quick else ("model=base",)
    yield decoding.part(session, ("float32", "bfloat16"), *sized)


def _sizes(session: Session) -> Iterator[BenchPart]:
    yield _training(session, "sizes", sizes(session.quick))


def _lengths(session: Session) -> Iterator[BenchPart]:
    yield _training(session, "lengths", lengths(session.quick))


# In the order in which they run: what matters less, or is measured in many steps, comes last.
PARTS: dict[str, Callable[[Session], Iterable[BenchPart]]] = {
    "correctness": correctness.parts,
    "sizes": _sizes,
    "decoding": _decoding,
    "lengths": _lengths,
}


def _training(session: Session, name: str, benchmarks: Iterable[GpuBenchmark]) -> BenchPart:
    """One training benchmark after the other, as long as there is time."""
    table, facts, left_out = [], [], []
    for planned in benchmarks:
        if session.is_over:
            left_out.append(planned.title)
            continue
        more, fact = _measure(session, planned)
        table += more
        facts.append(fact)
    return BenchPart(
        name,
        f"training on {session.device}: {name}",
        list(COLUMNS),
        table,
        [
            "MFU: model operations over the matmul peak in the same number format and rounds",
            *(f"{title}: {LEFT_OUT}" for title in left_out),
        ],
        {"benchmarks": facts, "left_out": left_out},
    )


def _measure(session: Session, planned: GpuBenchmark) -> tuple[list[list[str]], dict[str, Any]]:
    """The rows of one benchmark, and its figures."""
    choices = {name: settings_of(session, planned, name) for name in planned.choices}
    able = [s for s in choices.values() if not isinstance(s, str)]
    if not able:
        why = "; ".join(dict.fromkeys(map(str, choices.values())))
        row = [planned.title, *("-" for _ in COLUMNS), why]
        return [row], {"title": planned.title, "failed": why}
    vocab = 200 if session.quick else VOCAB
    data = training_corpus(session, able[0], vocab=vocab, updates=2, **planned.kind)
    (measured,), peaks = trainings(
        session,
        data,
        [name.split()[0] for name in choices],
        [trainer(session, name, s, data) for name, s in choices.items()],
    )
    for m in measured:
        m.figures[BESIDE] = ratio(m, measured[0])
    table = [[f"{planned.title}: {name}", *cells] for name, *cells in rows(COLUMNS, measured)]
    entries = [m.to_json() for m in measured]
    return table, {"title": planned.title, "entries": entries, "peaks": to_json(peaks)}
