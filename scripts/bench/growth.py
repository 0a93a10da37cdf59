"""Growth: time and memory as functions of length, batch, vocabulary, corpus and processes."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from nmt import config
from scripts.bench import decoding, preparation
from scripts.bench.places import Setup
from scripts.bench.rounds import Contestant, Entry, race
from scripts.bench.table import GIGA, Part, figure
from scripts.bench.training import VOCAB, course, ours

LENGTHS = (25, 50, 100, 200, 400)  # pieces
SENTENCES = (4, 8, 16, 32, 64)  # of a batch
VOCABULARIES = (2_000, 4_000, 8_000, 16_000, 32_000)
STEPS = (8, 16, 32, 64, 128)  # tokens of a translation, and of its source
LINES = (2_500, 5_000, 10_000, 20_000, 40_000)  # pairs of a corpus
FEW = 8  # sentences of a batch whose length grows
MIDDLE = 16  # sentences of a batch whose vocabulary grows
PIECES = 25  # of each sentence where lengths stay


class Curve(NamedTuple):
    """One figure as a function of another."""

    name: str
    axis: str
    expected: str  # how it must grow, at least
    points: list[float]
    entries: list[Entry]

    @property
    def measured(self) -> list[tuple[float, float, float | None]]:
        """(x, median seconds, peak bytes) of the points that ran."""
        return [
            (x, median(entry.seconds), entry.last("gpu_bytes") or entry.last("peak_bytes"))
            for x, entry in zip(self.points, self.entries, strict=True)
            if entry.rounds
        ]


def part(settings: config.Settings, words: "Make", setup: Setup, out: Path) -> Part:
    """Measure all curves, and draw them below `out`; `words` makes settings from more words."""
    curves = [
        _steps(words, setup, "length", "pieces of each of 8 sentences", LENGTHS),
        _steps(words, setup, "batch", "sentences of 26 tokens", SENTENCES),
        _steps(words, setup, "vocabulary", "pieces of the vocabulary", VOCABULARIES),
        _sentence(words, setup),
        _lines(words, setup),
        _processes(words, setup),
    ]
    rows, found = [], []
    for curve in curves:
        some = curve.measured
        seconds = [(x, s) for x, s, _ in some]
        memory = [(x, m) for x, _, m in some if m]
        rows.append(
            [
                curve.name,
                " ".join(f"{x:g}" for x, *_ in some),
                " ".join(f"{s:.3g}" for _, s in seconds),
                figure(exponent(seconds), "{:.2f}"),
                figure(exponent(seconds[-2:]), "{:.2f}"),
                curve.expected,
                " ".join(f"{m / GIGA:.2f}" for _, m in memory),
                figure(exponent(memory), "{:.2f}"),
                "; ".join(dict.fromkeys(e.failed for e in curve.entries if e.failed)),
            ]
        )
        found.append(
            {
                "name": curve.name,
                "axis": curve.axis,
                "points": curve.points,
                "entries": [entry.to_json() for entry in curve.entries],
                "exponent of time": exponent(seconds),
                "exponent of time, last doubling": exponent(seconds[-2:]),
                "exponent of memory": exponent(memory),
                "expected": curve.expected,
            }
        )
    pictures = draw(curves, out)
    return Part(
        "growth",
        "growth: exponents of fitted powers; 1.00 is proportional",
        ["", "points", "seconds", "exponent", "at the end", "expected", "GB", "exponent", ""],
        rows,
        [*pictures, "seconds hold what does not grow, too: the exponent at the end is of the last "
         "two points"],
        {"curves": found, "pictures": pictures},
    )  # fmt: skip


Make = Callable[..., config.Settings]


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of a line through the logarithms, by least squares; None for fewer than two."""
    if len(points) < 2:
        return None
    xs, ys = ([math.log(value) for value in each] for each in zip(*points, strict=True))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread


def _some(points: Sequence[int], setup: Setup) -> list[int]:
    return list(points[:2] if setup.quick else points)


def _steps(make: Make, setup: Setup, what: str, axis: str, points: Sequence[int]) -> Curve:
    """A training step; what does not grow stays small."""
    contestants: list[Contestant] = []
    expected = "1"
    for x in _some(points, setup):
        pieces = x if what == "length" else PIECES
        count = {"length": FEW, "batch": x, "vocabulary": MIDDLE}[what]
        vocab = x if what == "vocabulary" else 200 if setup.quick else VOCAB
        settings = make(f"trainer.batch_tokens={count * (pieces + 1)}")
        on = course(
            settings, setup, vocab=vocab, updates=2, mean=pieces, equal=True,
            pairs=count * 2 * (setup.rounds + 1),
        )  # fmt: skip
        contestants.append(ours(f"{what} {x}", settings, on, setup))
    if what == "length":
        expected = "1, to 2 where attention prevails"
    elif what == "vocabulary":
        expected = "0 to 1"
    return _curve(f"step, {what}", axis, expected, _some(points, setup), contestants, setup)


def _curve(
    name: str,
    axis: str,
    expected: str,
    points: Sequence[int],
    contestants: Sequence[Contestant],
    setup: Setup,
) -> Curve:
    entries = race(contestants, min(setup.rounds, 3))
    return Curve(name, axis, expected, [float(x) for x in points], entries)


def _sentence(make: Make, setup: Setup) -> Curve:
    """One sentence after another, source and translation growing together."""
    points = _some(STEPS, setup)
    contestants = [
        decoding.alone(f"tokens {x}", make(*decoding.forced(x)), x, setup) for x in points
    ]
    axis = "tokens of a source and of its translation"
    return _curve("decode a sentence", axis, "1 to 2", points, contestants, setup)


def _lines(make: Make, setup: Setup) -> Curve:
    """Preparation by one process."""
    points = _some((100, 200) if setup.quick else LINES, setup)
    contestants = []
    for x in points:
        root = setup.directory / f"lines-{x}"
        preparation.files(root, x)
        settings = make(*preparation.WORDS, f"data.root={root}")
        merges = 100 if setup.quick else preparation.MERGES
        contestants.append(preparation.ours(settings, root, 1, merges, setup))
    return _curve("prepare, lines", "pairs of lines", "1", points, contestants, setup)


def _processes(make: Make, setup: Setup) -> Curve:
    """Preparation of the same text by more and more processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    points = [n for n in (1, 2, 4, 8, 16) if n <= (cores or 1)]
    root = setup.directory / "processes"
    preparation.files(root, 200 if setup.quick else preparation.PAIRS)
    settings = make(*preparation.WORDS, f"data.root={root}")
    merges = 100 if setup.quick else preparation.MERGES
    contestants = [preparation.ours(settings, root, n, merges, setup) for n in points]
    return _curve("prepare, processes", "processes", "-1", points, contestants, setup)


def draw(curves: Sequence[Curve], out: Path) -> list[str]:
    """Draw seconds and memory of each curve over logarithmic axes, as SVG and PNG."""
    try:
        import matplotlib
    except ImportError:
        return ["no pictures: matplotlib is not installed (pip install 'nmt[report]')"]
    matplotlib.use("Agg")
    from matplotlib import pyplot

    there = [curve for curve in curves if curve.measured]
    if not there:
        return ["no pictures: nothing ran"]
    columns = min(3, len(there))
    rows = -(-len(there) // columns)
    figure_, axes = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(there) :]:
        axis.set_visible(False)
    for axis, curve in zip(axes.flat, there, strict=False):
        _panel(axis, curve)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"growth.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure_.savefig(path, dpi=130)
    pyplot.close(figure_)
    return [str(path) for path in paths]


def _panel(axis: Any, curve: Curve) -> None:
    """Seconds in black, with a dotted line of slope 1 (or -1); gigabytes in grey."""
    from matplotlib.ticker import LogLocator

    xs = [x for x, *_ in curve.measured]
    seconds = [s for _, s, _ in curve.measured]
    memory = [(m or 0) / GIGA for *_, m in curve.measured]
    axis.loglog(xs, seconds, "o-", color="black", label="seconds")
    slope = -1 if curve.expected == "-1" else 1
    axis.loglog(
        xs, [seconds[0] * (x / xs[0]) ** slope for x in xs], ":", color="black",
        label="proportional" if slope == 1 else "inverse",
    )  # fmt: skip
    if all(memory):
        axis.loglog(xs, memory, "s--", color="0.55", label="GB")
    found = exponent(list(zip(xs, seconds, strict=True)))
    axis.set_title(f"{curve.name}: exponent {figure(found, '{:.2f}')}", fontsize=10)
    axis.set_xlabel(curve.axis)
    axis.set_xticks(xs, [f"{x:g}" for x in xs])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # a curve may span no decade
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.legend(fontsize=8, frameon=False)
