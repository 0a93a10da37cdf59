"""How numbers and marks are written, in text and on the page, and what they mean."""

import re
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from nmt.evaluation.metrics import Metric
from nmt.evaluation.report import (
    ALL,
    BEYOND,
    FEW,
    SIGNIFICANT,
    TESTED,
    ComparedSystem,
    Figure,
    Group,
    Report,
    TranslatedTest,
)

STAR, CARET, EMPTY = "*", "^", "-"  # significant; beyond the trained length; no such number
DIGITS = {"score": 1, "mean": 3, "ratio": 2, "share": 1, "points": 1}  # by form of a metric
SYSTEM_COLUMNS = (
    *("parameters", "in encodings", "longest in training", "seeds", "updates", "dev perplexity"),
)

# Characters that a reader cannot see, or that reorder what stands around them. Joiners between
# letters are kept, since Persian, Hindi and others are misspelt without them.
JOINERS = r"(?<=[^\W\x00-\x7f])[\u200c\u200d](?=[^\W\x00-\x7f])"
INVISIBLE = re.compile(
    f"({JOINERS})|"
    r"([\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f])"
)


def number(value: float | None, form: str = "score") -> str:
    """`31.7`; a share in percent."""
    scale = 100 if form in ("share", "points") else 1
    return EMPTY if value is None else f"{scale * value:.{DIGITS[form]}f}"


def count(value: float | None) -> str:
    """`28,075`."""
    return EMPTY if value is None else f"{value:,.0f}"


def title_of(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.is_share else metric.name


def mean(figure: Figure, metric: Metric) -> str:
    """`31.7`, or `31.7 ± 0.4` of several seeds."""
    written = number(figure.mean, metric.form)
    spread = figure.deviation
    return written if spread is None else f"{written} ± {number(spread, metric.form)}"


def interval(figure: Figure | None, metric: Metric) -> str:
    """`[30.9, 32.4]`."""
    if figure is None or figure.low is None:
        return EMPTY
    return f"[{number(figure.low, metric.form)}, {number(figure.high, metric.form)}]"


def p_value(p: float | None) -> str:
    """`0.017`, or `<.001`."""
    if p is None:
        return EMPTY
    return "<.001" if p < 0.001 else f"{p:.3f}"


def marks(figure: Figure) -> str:
    """A star for a significant difference, a caret beyond the trained length."""
    return STAR * figure.significant + CARET * figure.unseen


def pairs(group: Group) -> str:
    """`n = 640`."""
    return f"n = {count(group.pairs)}{' few' if group.few else ''}"


def describe_axis(test: TranslatedTest) -> str:
    return f"{test.side} length in {test.unit}" if test.unit else "no source, hence no lengths"


def system_cells(system: ComparedSystem) -> list[str]:
    steps = sorted({run["step"] for run in system.runs})
    perplexities = [p for run in system.runs if (p := run["dev_perplexity"]) is not None]
    perplexity = f"{fmean(perplexities):.2f}" if perplexities else EMPTY
    return [
        *map(count, (system.parameters, system.encoding_parameters, system.longest_trained)),
        count(len(system.runs) or None),
        "-".join(map(count, dict.fromkeys([*steps[:1], *steps[-1:]]))) or EMPTY,
        f"{perplexity} ± {stdev(perplexities):.2f}" if len(perplexities) > 1 else perplexity,
    ]


def order_systems(report: Report, test: TranslatedTest) -> list[str]:
    """The labels of the systems, by their scores beyond training, or else in the last bucket."""
    metric = test.metrics[0]
    candidates = [*filter(None, [test.group(BEYOND)]), *test.buckets[::-1], *test.groups]
    group = next(g for g in candidates if any(report.row(test, g, metric.name)))
    sign = -1 if metric.higher_is_better else 1
    means = {f.system: sign * f.mean for f in report.row(test, group, metric.name) if f}
    return sorted(report.labels, key=lambda label: means.get(label, float("inf")))


def conclude(report: Report, test: TranslatedTest) -> list[str]:
    """Which system is best beyond the trained lengths, and which differ from the first.

    Two sentences on the main metric and one group: all lines beyond training; the longest bucket
    where that is all of them; all pairs where none is. None for a single system. Of few pairs
    the first sentence says that they decide nothing.
    """
    metric = test.metrics[0]
    candidates = [test.group(BEYOND), *reversed(test.buckets), test.group(ALL)]
    rows = [(group, report.row(test, group, metric.name)) for group in candidates if group]
    group, row = next((pair for pair in rows if any(f and f.unseen for f in pair[1])), rows[-1])
    figures = [figure for figure in row if figure]
    if len(figures) < 2:
        return []
    first, best = figures[0], figures[0]
    for figure in figures:
        if (figure.mean > best.mean) == metric.higher_is_better:
            best = figure
    alike = [f.system for f in figures if number(f.mean) == number(best.mean)]  # as it is shown
    lines = f"{count(group.pairs)} pairs of {test.name}"
    which = {ALL: f"all {lines}", BEYOND: f"the {lines} that are longer than any in training"}.get(
        group.name, f"the {lines} of length {group.name}, beyond training"
    )
    sentence = (
        f"On {which}, {join_words(alike)} "
        f"{'has' if len(alike) == 1 else 'have'} the "
        f"{'highest' if metric.higher_is_better else 'lowest'} {metric.name}, {mean(best, metric)}"
    )
    if first.system not in alike:
        sentence += f", against {mean(first, metric)} of {first.system}"
        if best.p is not None and not group.few:
            sentence += " (p < .001)" if best.p < 0.001 else f" (p = {p_value(best.p)})"
    if group.few:
        return [f"No conclusion: {which} are too few, under {FEW}.", f"{sentence}."]
    return [f"{sentence}.", _judge(figures, group, metric)]


def _judge(row: Sequence[Figure], group: Group, metric: Metric) -> str:
    """Which systems differ from the first significantly, by one metric and on one group."""
    differing = [figure.system for figure in row if figure.significant]
    who = join_words(differing) if differing else "no system"
    verb = "differ" if len(differing) > 1 else "differs"
    return (
        f"On these {count(group.pairs)} pairs, {who} {verb} significantly from {row[0].system} in "
        f"{metric.name} (paired bootstrap, p < {SIGNIFICANT})."
    )


def join_words(items: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def notes_of(report: Report) -> list[str]:
    """What intervals and marks of this report mean; then the notes that it brings."""
    notes = [
        f"95%: interval, bootstrap over the pairs, {report.samples} samples, seed {report.seed}; "
        f"{_describe_seeds(report)}."
    ]
    if any(figure.deviation is not None for figure in report.figures):
        notes[0] += " ±: standard deviation over seeds."
    if any(figure.p is not None for figure in report.figures):
        notes.append(
            f"p: probability that chance alone makes a system differ from {report.labels[0]} by as "
            "much, in either direction (paired bootstrap of the means over seeds). Each number is "
            f"tested alone: of 20 tests without a true difference, one has p < {SIGNIFICANT}. "
            f"Groups of fewer than {TESTED} pairs are not tested. {STAR} p < {SIGNIFICANT}, at "
            f"least {FEW} pairs."
        )
    if any(figure.unseen for figure in report.figures):
        sides = join_words(dict.fromkeys(test.side for test in report.tests))
        notes.append(f"{CARET} every {sides} is longer than any in the system's training.")
    if any(group.few for test in report.tests for group in test.groups):
        notes.append(f"few: under {FEW} pairs, not reliable; hollow in plots.")
    notes += [
        f"Longest {test.side} of {test.name}: {count(test.longest)}."
        for test in report.tests
        if test.longest
    ]
    metrics = [m for t in report.tests for m in t.metrics if m.signature]
    signatures = dict.fromkeys(f"{m.name}: {m.signature}" for m in metrics)
    return [*notes, *_warn_of_budgets(report), *report.notes, *signatures]


def _describe_seeds(report: Report) -> str:
    runs = [len(system.runs) for system in report.systems]
    degrees = sum(max(0, count - 1) for count in runs)
    if not degrees:
        return "seeds of training are held fixed"
    apart = ", that of systems without several seeds held fixed" if min(runs) < 2 else ""
    of = "degree" if degrees == 1 else "degrees"
    return f"and over seeds, by their pooled deviation with {degrees} {of} of freedom{apart}"


def _warn_of_budgets(report: Report) -> list[str]:
    runs = [(system.label, run["step"]) for system in report.systems for run in system.runs]
    if len({step for _, step in runs}) < 2:
        return []
    budgets = ", ".join(dict.fromkeys(f"{label} {count(step)}" for label, step in runs))
    return [f"Warning: systems were trained for different numbers of updates: {budgets}."]


def spell_out(text: str) -> str:
    """The text with every invisible character spelt out: `␀` to `␟`, `␡`, or `⟨U+200B⟩`."""

    def spell(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        code = ord(match[2])
        if code < 0x20:
            return chr(0x2400 + code)
        return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"

    return INVISIBLE.sub(spell, text)
