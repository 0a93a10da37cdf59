"""Growth: time and memory as functions of length, batch, vocabulary, corpus and processes."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

from nmt.system.resources import cores
from scripts.bench import decoding, preparation
from scripts.bench.candidates import Candidate
from scripts.bench.rounds import Measurement, benchmark, middle
from scripts.bench.session import Session
from scripts.bench.table import GIGA, BenchPart, figure
from scripts.bench.training import trainer, training_corpus

LENGTHS = (25, 50, 100, 200, 400)  # pieces
SENTENCES = (4, 8, 16, 32, 64)  # of a batch
VOCABULARIES = (2_000, 4_000, 8_000, 16_000, 32_000)
STEPS = (8, 16, 32, 64, 128)  # tokens of a translation, and of its source
LINES = (2_500, 5_000, 10_000, 20_000, 40_000)  # pairs of a corpus
PROCESSES = (1, 2, 4, 8, 16)
FEW = 8  # sentences of a batch whose length grows
MIDDLE = 16  # sentences of a batch whose vocabulary grows
PIECES = 25  # of each sentence where lengths stay
COLUMNS = ("points", "seconds", "exponent", "at the end", "expected", "GB", "exponent")


class GrowthCurve(NamedTuple):
    """One figure as a function of another."""

    name: str
    axis: str
    expected: str  # how it must grow, at least
    points: list[float]
    entries: list[Measurement]

    @property
    def measured(self) -> list[tuple[float, float, int | None]]:
        """(x, median seconds, peak bytes) of the points that ran."""
        return [
            (x, seconds, entry.memory)
            for x, entry in zip(self.points, self.entries, strict=True)
            if (seconds := middle(entry.seconds)) is not None
        ]

    @property
    def exponents(self) -> dict[str, float | None]:
        """The exponents of time, of time between the last two points, and of memory."""
        seconds = [(x, s) for x, s, _ in self.measured]
        return {
            "exponent of time": exponent(seconds),
            "exponent of time, last doubling": exponent(seconds[-2:]),
            "exponent of memory": exponent([(x, m) for x, _, m in self.measured if m]),
        }

    def row(self) -> list[str]:
        """The row below COLUMNS."""
        time, end, memory = (figure(power, "{:.2f}") for power in self.exponents.values())
        return [
            self.name,
            " ".join(f"{x:g}" for x, *_ in self.measured),
            " ".join(f"{s:.3g}" for _, s, _ in self.measured),
            time,
            end,
            self.expected,
            " ".join(f"{m / GIGA:.2f}" for *_, m in self.measured if m),
            memory,
            "; ".join(dict.fromkeys(m.failed for m in self.entries if m.failed)),
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything, every round included."""
        whole = self._asdict() | {"entries": [m.to_json() for m in self.entries]}
        return whole | self.exponents


def parts(session: Session) -> list[BenchPart]:
    """Measure all curves, and draw them."""
    curves = list(_curves(session))
    pictures = draw(curves, session.out)
    return [
        BenchPart(
            "growth",
            "growth: exponents of fitted powers; 1.00 is proportional",
            COLUMNS,
            [curve.row() for curve in curves],
            [
                *pictures,
                "seconds hold what does not grow, too: the exponent at the end is of the last "
                "two points",
            ],
            {"curves": [curve.to_json() for curve in curves], "pictures": pictures},
        )
    ]


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of a line through the logarithms, by least squares; None for fewer than two."""
    if len(points) < 2:
        return None
    xs, ys = ([math.log(value) for value in axis] for axis in zip(*points, strict=True))
    return linear_regression(xs, ys).slope


def _curves(session: Session) -> Iterator[GrowthCurve]:
    """Measure one curve after another; what does not grow stays small."""
    quick = session.quick

    def curve(
        name: str,
        axis: str,
        expected: str,
        points: Sequence[int],
        make: Callable[[int], Candidate],
    ) -> GrowthCurve:
        points = points[:2] if quick else points
        (entries,) = benchmark(min(session.rounds, 3), [make(x) for x in points])
        return GrowthCurve(name, axis, expected, [float(x) for x in points], entries)

    def step(
        name: str, pieces: int = PIECES, count: int = MIDDLE, vocab: int | None = None
    ) -> Candidate:
        settings = session.settings(f"trainer.batch_tokens={count * (pieces + 1)}")
        pairs = count * 2 * (session.rounds + 1)
        data = training_corpus(
            session, settings, vocab=vocab, updates=2, mean=pieces, equal=True, pairs=pairs
        )
        return trainer(session, name, settings, data)

    yield curve(
        "step, length", "pieces of each of 8 sentences", "1, to 2 where attention prevails",
        LENGTHS, lambda x: step(f"length {x}", pieces=x, count=FEW),
    )  # fmt: skip
    yield curve(
        "step, batch", "sentences of 26 tokens", "1",
        SENTENCES, lambda x: step(f"batch {x}", count=x),
    )  # fmt: skip
    yield curve(
        "step, vocabulary", "pieces of the vocabulary", "0 to 1",
        VOCABULARIES, lambda x: step(f"vocabulary {x}", vocab=x),
    )  # fmt: skip
    yield curve(
        "decode a sentence", "tokens of a source and of its translation", "1 to 2",
        STEPS, lambda x: decoding.alone(session, session.settings(*decoding.forced(x)), x),
    )  # fmt: skip
    yield curve(
        "prepare, lines", "pairs of lines", "1", (100, 200) if quick else LINES,
        lambda x: preparation.preparation(session, preparation.text_files(session, x), 1),
    )  # fmt: skip
    root = preparation.text_files(session, 200 if quick else preparation.PAIRS)
    yield curve(
        "prepare, processes", "processes", "-1", [n for n in PROCESSES if n <= cores()],
        lambda x: preparation.preparation(session, root, x),
    )  # fmt: skip


def draw(curves: Sequence[GrowthCurve], out: Path) -> list[str]:
    """Draw seconds and memory of each curve over logarithmic axes, as SVG and PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ["no pictures: matplotlib is not installed (pip install 'nmt-toolkit[report]')"]
    shown = [curve for curve in curves if curve.measured]
    if not shown:
        return ["no pictures: nothing ran"]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    picture = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    for axes, curve in zip_longest(picture.subplots(rows, columns, squeeze=False).flat, shown):
        if curve is None:
            axes.set_visible(False)
        else:
            _panel(axes, curve)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"growth.{kind}" for kind in ("svg", "png")]
    for path in paths:
        picture.savefig(path, dpi=130)
    return [str(path) for path in paths]


def _panel(axes: Any, curve: GrowthCurve) -> None:
    """Seconds in black, with a dotted line of slope 1 (or -1); gigabytes in grey."""
    from matplotlib.ticker import LogLocator

    xs, seconds, memory = zip(*curve.measured, strict=True)
    axes.loglog(xs, seconds, "o-", color="black", label="seconds")
    slope, label = (-1, "inverse") if curve.expected == "-1" else (1, "proportional")
    straight = [seconds[0] * (x / xs[0]) ** slope for x in xs]
    axes.loglog(xs, straight, ":", color="black", label=label)
    if all(memory):
        axes.loglog(xs, [m / GIGA for m in memory], "s--", color="0.55", label="GB")
    steepness = figure(curve.exponents["exponent of time"], "{:.2f}")
    axes.set_title(f"{curve.name}: exponent {steepness}", fontsize=10)
    axes.set_xlabel(curve.axis)
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # a curve may span no decade
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False)
