"""How numbers and marks are written, in text and on the page, and what they mean."""

import re
from collections.abc import Iterable
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
    *("parameters", "of encodings", "longest source", "seeds", "updates", "dev perplexity"),
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
    """The name of a metric, with its unit."""
    return f"{metric.name}, %" if metric.form in ("share", "points") else metric.name


def mean(figure: Figure | None, metric: Metric) -> str:
    """`31.7`, or `31.7 ± 0.4` of several seeds."""
    if figure is None:
        return EMPTY
    written = number(figure.mean, metric.form)
    spread = figure.deviation
    return written if spread is None else f"{written} ± {number(spread, metric.form)}"


def interval(figure: Figure | None, metric: Metric) -> str:
    """`[30.9, 32.4]`."""
    if figure is None or figure.low is None:
        return EMPTY
    return f"[{number(figure.low, metric.form)}, {number(figure.high, metric.form)}]"


def p_value(figure: Figure | None) -> str:
    """`0.017`, or `<.001`."""
    if figure is None or figure.p is None:
        return EMPTY
    return "<.001" if figure.p < 0.001 else f"{figure.p:.3f}"


def marks(figure: Figure | None) -> str:
    """A star for a difference that the paired test finds, and a caret beyond the trained length."""
    if figure is None:
        return ""
    return STAR * figure.significant + CARET * figure.unseen


def pairs(group: Group) -> str:
    """`n = 640`."""
    return f"n = {count(group.pairs)}{' few' if group.few else ''}"


def describe_axis(test: TranslatedTest) -> str:
    """What the lengths of a test count."""
    return f"{test.side} length in {test.unit}" if test.unit else "no source, hence no lengths"


def order_systems(report: Report, test: TranslatedTest, best_first: bool) -> list[int]:
    """Systems as they were named, or those that are best beyond training (else longest) first."""
    systems = list(range(len(report.systems)))
    if not best_first:
        return systems
    metric = test.metrics[0]
    candidates = [*filter(None, [test.group(BEYOND)]), *test.buckets[::-1], *test.groups]
    row = report.row(test, report.known(test, metric.name, candidates)[0], metric.name)
    sign = -1 if metric.higher_is_better else 1
    return sorted(systems, key=lambda s: sign * f.mean if (f := row[s]) else float("inf"))


def system_cells(system: ComparedSystem) -> list[str]:
    """Size and budget of a system, by SYSTEM_COLUMNS."""
    steps = sorted({run["step"] for run in system.runs})
    known = [p for run in system.runs if (p := run["dev_perplexity"]) is not None]
    perplexity = f"{fmean(known):.2f}" if known else EMPTY
    return [
        *map(count, (system.parameters, system.encoding_parameters, system.longest_trained)),
        count(len(system.runs) or None),
        "-".join(map(count, dict.fromkeys([*steps[:1], *steps[-1:]]))) or EMPTY,
        f"{perplexity} ± {stdev(known):.2f}" if len(known) > 1 else perplexity,
    ]


def conclude(report: Report, test: TranslatedTest) -> list[str]:
    """Who is best beyond the trained lengths, and whether the paired test tells it: two sentences.

    Of the main metric, on all lines beyond training; of the longest bucket where that is all of
    them; of all pairs where none is. Nothing of a single system.
    """
    metric, group = test.metrics[0], _decisive_group(report, test)
    figures = [figure for figure in report.row(test, group, metric.name) if figure]
    if len(figures) < 2:
        return []
    first, best = figures[0], figures[0]
    for figure in figures:
        if (figure.mean > best.mean) == metric.higher_is_better:
            best = figure
    alike = [f.system for f in figures if number(f.mean) == number(best.mean)]  # as it is shown
    which = _which(group, test.name, any(f.unseen for f in figures))
    sentence = (
        f"{which}, {listed(alike)} {'has' if len(alike) == 1 else 'have'} the "
        f"{'highest' if metric.higher_is_better else 'lowest'} {metric.name}, {mean(best, metric)}"
    )
    if first.system not in alike:
        sentence += f", against {mean(first, metric)} of {first.system}"
        equals = "" if best.p is not None and best.p < 0.001 else "= "
        sentence += "" if best.p is None else f" (p {equals}{p_value(best)})".replace("<", "< ")
    apart = [figure.system for figure in figures if figure.significant]
    verdict = f"The paired test tells no system from {first.system}."
    if all(figure.p is None for figure in figures):
        verdict = "There are too few pairs for a paired test."
    elif apart:
        differ = "differs" if len(apart) == 1 else "differ"
        verdict = f"By the paired test (p < {SIGNIFICANT}), {listed(apart)} {differ} from "
        verdict += f"{first.system}."
    return [f"{sentence}.", f"Few pairs: not reliable. {verdict}" if group.few else verdict]


def _decisive_group(report: Report, test: TranslatedTest) -> Group:
    """The lines beyond training; the longest bucket beyond that of some system; or all."""
    metric = test.metrics[0].name
    candidates = [*filter(None, [test.group(BEYOND)]), *reversed(test.buckets)]
    unseen = (g for g in candidates if any(f and f.unseen for f in report.row(test, g, metric)))
    return next(unseen, next(group for group in test.groups if group.name == ALL))


def _which(group: Group, test: str, unseen: bool) -> str:
    if group.name == ALL:
        return f"On all {count(group.pairs)} pairs of {test}"
    if group.name == BEYOND:
        return f"On the {count(group.pairs)} pairs of {test} that are longer than any in training"
    where = f"On the {count(group.pairs)} pairs of {test} of length {group.name}"
    return where + ", beyond training" * unseen


def listed(items: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def notes_of(report: Report) -> list[str]:
    """How to read the numbers, as far as their marks occur; then what the report says of itself."""
    notes = [
        f"95%: interval, bootstrap over the pairs, {report.samples} samples, seed {report.seed}; "
        f"{_seeds(report)}."
    ]
    if any(figure.p is not None for figure in report.figures):
        notes.append(
            f"p: paired bootstrap of the means over seeds against {report.labels[0]}; "
            f"two-sided, uncorrected, from {TESTED} pairs. {STAR} p < {SIGNIFICANT}."
        )
    if any(figure.unseen for figure in report.figures):
        sides = listed(dict.fromkeys(test.side for test in report.tests))
        notes.append(f"{CARET} every {sides} is longer than any in the system's training.")
    if any(group.few for test in report.tests for group in test.groups):
        notes.append(f"few: under {FEW} pairs, not reliable.")
    longest = [f"{t.name} {count(t.longest)} ({t.side})" for t in report.tests if t.longest]
    notes += [f"Longest: {', '.join(longest)}."] if longest else []
    metrics = [m for t in report.tests for m in t.metrics if m.signature]
    signatures = dict.fromkeys(f"{m.name}: {m.signature}" for m in metrics)
    return [*notes, *_budgets(report), *report.notes, *signatures]


def _seeds(report: Report) -> str:
    """What the intervals say of seeds of training."""
    runs = [len(system.runs) for system in report.systems]
    degrees = sum(max(0, count - 1) for count in runs)
    if not degrees:
        return "seeds of training are held fixed"
    apart = ", that of systems without several seeds held fixed" if min(runs) < 2 else ""
    of = "degree" if degrees == 1 else "degrees"
    return f"and over seeds, by their pooled deviation with {degrees} {of} of freedom{apart}"


def _budgets(report: Report) -> list[str]:
    """The updates of all runs, and a warning if some had more than others."""
    runs = [(system.label, run["step"]) for system in report.systems for run in system.runs]
    if len(steps := {step for _, step in runs}) > 1:
        budgets = dict.fromkeys(f"{label} {count(step)}" for label, step in runs)
        return [
            f"Warning: systems were trained for different numbers of updates: {', '.join(budgets)}."
        ]
    every = all(system.runs for system in report.systems)
    labels = ", ".join(dict.fromkeys(label for label, _ in runs))
    who = "Every model was" if every else f"{labels}:"
    return [f"{who} trained for {count(step)} update{'s' * (step != 1)}." for step in steps]


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
