"""Tables of scores: rates, ranks, contrasts, lengths, corpus against manuals, the anchor."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nmt.compare.notation import deviating, number, p_value, ranks
from nmt.compare.notation import interval as score_interval
from nmt.compare.ranks import spearman
from nmt.compare.report import Score
from nmt.compare.significance import Floats, holm, interval
from nmt.compare.text.columns import markdown_table
from scripts.longtext.plan import CONTRASTS, GRAMMAR, LONGEST, MANUALS, RATES, REMEDY
from scripts.longtext.systems import (
    EXPLORATORY,
    ByRun,
    SeededSystem,
    bleu_by_run,
    estimates,
    far_lines,
    scored,
)
from scripts.longtext.texts import WHOLE

TITLES = {GRAMMAR: "embedded corpus", MANUALS: "manuals"}
ANCHORED = "transformer_xl"  # the system that stands for the published one
PUBLISHED = 100.0  # exact match on SCAN beyond 26 actions: Csordás et al. (2021), abstract
GROUPS = {  # last length of each but one
    GRAMMAR: [24, 48, 96, 144],
    MANUALS: [25, 50, 100],
    REMEDY: [25, 50, 100],
}


def rates(perplexities: Mapping[str, Sequence[float]]) -> str:
    """Dev perplexity by encoding and rate, and what follows from the range of rates."""
    lines = [["encoding", *RATES]]
    greatest = 0
    for label, tried in perplexities.items():
        best = tried.index(min(tried))
        greatest += best == len(RATES) - 1
        cells = [f"**{p:.3f}**" if i == best else f"{p:.3f}" for i, p in enumerate(tried)]
        lines.append([f"`{label}`", *cells])
    return (
        "Dev perplexity after 800 updates by peak rate, one seed; the least is taken in A. "
        f"{greatest} of {len(perplexities)} encodings take the greatest rate that was tried, and "
        "may be better at a greater one. C takes 1e-3 for all, not chosen by its text.\n\n"
        f"{markdown_table(lines)}"
    )


def ranking(part: str, systems: Sequence[SeededSystem]) -> str:
    """Systems by BLEU beyond the trained length, and the planned contrasts."""
    far = far_lines(systems, part)
    metrics = [m for m in ("BLEU", "chrF2", "TER") if m in systems[0].runs[0].tests[WHOLE]]
    test = scored(systems, WHOLE, [LONGEST[part]], metrics)
    near_row, far_row, _ = test.rows
    lines = [["encoding", "rank", "BLEU beyond", "its seeds", "BLEU within"]]
    lines[0] += [f"{metric} beyond" for metric in metrics[1:]]
    lines[0] += ["length ratio", "repeated, %", "perplexity", "updates", "parameters", "ms/update"]
    for system, near, cell in zip(systems, near_row.cells, far_row.cells, strict=True):
        bleu = cell.scores["BLEU"]
        line = [f"`{system.label}`", ranks(bleu), with_deviation(bleu), seeds(bleu)]
        line.append(with_deviation(near.scores["BLEU"]))
        line += [number(cell.scores[metric].mean) for metric in metrics[1:]]
        line += [number(cell.ratio, 2), number(100 * system.mean_share(WHOLE, "repeats", far))]
        line += [number(perplexity(system, far), 2), f"{system.median('step'):,.0f}"]
        line += [f"{system.median('parameters'):,.0f}", f"{1000 * system.seconds:.0f}"]
        lines.append(line)
    return (
        f"BLEU of {far.sum():,} lines whose source is longer than {LONGEST[part]} pieces, and of "
        f"{(~far).sum():,} others; {len(systems[0].runs)} seeds each. The checkpoint with the best "
        "dev perplexity is scored; updates are those of the whole training. Ranks are 95 % "
        "intervals of the place of each system, not corrected for the number of systems. Length "
        "ratio, repeated 4-grams and perplexity of the references are of the longer lines; "
        "ms/update is of one core of a machine that had other work, too.\n\n"
        f"{markdown_table(lines)}\n\n"
        f"{contrast_table(bleu_by_run(systems, WHOLE, far), CONTRASTS)}"
    )


def with_deviation(score: Score) -> str:
    """`56.7 ± 0.4 [55.9, 57.6]`."""
    return f"{deviating(score.mean, score.deviation)} {score_interval(score)}"


def seeds(score: Score) -> str:
    """The score of each seed."""
    return ", ".join(map(number, score.seeds))


def perplexity(system: SeededSystem, lines: NDArray[np.bool_]) -> float:
    """Of the references by piece, lines pooled; the mean over runs."""
    sums = [table[lines].sum(axis=0, dtype=float) for table in system.tables(WHOLE, "likelihood")]
    return fmean(math.exp(-log_prob / pieces) for log_prob, pieces in sums)


def contrast_table(values: ByRun, contrasts: Sequence[tuple[str, str]]) -> str:
    """Planned differences with their intervals and corrected p."""
    of_all = estimates(values)
    differences = [of_all[name] - of_all[base] for name, base in contrasts]
    corrected = holm([difference.p() for difference in differences])
    lines = [["contrast", "difference", "p, corrected", "with the deviation of these two alone"]]
    for (name, base), difference, p in zip(contrasts, differences, corrected, strict=True):
        of_two = estimates({label: values[label] for label in (name, base)})
        alone = (of_two[name] - of_two[base]).shown("+z.1f")
        lines.append([f"`{name}` - `{base}`", difference.shown("+z.1f"), p_value(p), alone])
    return (
        "Planned contrasts, BLEU beyond. Seeds deviate by as much in all systems, so the plan has "
        "it; where the last column differs much, they do not. Brackets are not corrected.\n\n"
        f"{markdown_table(lines)}"
    )


def by_length(part: str, systems: Sequence[SeededSystem], side: str) -> str:
    """BLEU in groups of lengths."""
    test = scored(systems, WHOLE, GROUPS[part], ["BLEU"], side, EXPLORATORY)
    lines = [["encoding", *(f"{row.name} ({row.pairs:,})" for row in test.filled)]]
    for s, system in enumerate(systems):
        scores = [row.cells[s].scores["BLEU"] for row in test.filled]
        cells = [f"{number(score.mean)} {score_interval(score)}" for score in scores]
        lines.append([f"`{system.label}`", *cells])
    return f"BLEU by {side} length in pieces (lines):\n\n{markdown_table(lines)}"


def against(grammar: Sequence[SeededSystem], real: Sequence[SeededSystem]) -> str:
    """The same encodings in both parts, and how alike their orders are."""
    common = {system.label for system in grammar} & {system.label for system in real}
    chosen = [[s for s in systems if s.label in common] for systems in (grammar, real)]
    on_grammar, on_real = (
        estimates(bleu_by_run(systems, WHOLE, far_lines(systems, part)))
        for part, systems in zip((GRAMMAR, MANUALS), chosen, strict=True)
    )
    lines = [["encoding", *(f"BLEU beyond, {title}" for title in TITLES.values())]]
    for label in on_real:
        lines.append([f"`{label}`", *(number(part[label].mean) for part in (on_grammar, on_real))])
    pairs = [(on_grammar[label], on_real[label]) for label in on_real]
    sides = [*zip(*pairs, strict=True)]
    means = [np.array([[estimate.mean] for estimate in side]) for side in sides]
    samples = [np.stack([estimate.samples for estimate in side]) for side in sides]
    rho = float(spearman(*means)[0])
    low, high = interval(spearman(*samples))
    return (
        f"{markdown_table(lines)}\n\nSpearman's rho of these {len(pairs)} encodings: {rho:.2f} "
        f"[{low:.2f}, {high:.2f}] over lines and seeds; {over_encodings(rho, *means)}."
    )


def over_encodings(rho: float, first: Floats, second: Floats) -> str:
    """How sure rho is of other encodings: Fisher's z, and the exact test."""
    count = len(first)
    orders = np.array([*permutations(second[:, 0])]).T
    by_chance = spearman(first.repeat(orders.shape[1], axis=1), orders)
    exact = f"exact p {p_value(float((np.abs(by_chance) > abs(rho) - 1e-9).mean()))}"
    if abs(rho) > 1 - 1e-9:
        return f"over encodings, {exact}"
    ends = (math.tanh(math.atanh(rho) + sign * 1.96 / math.sqrt(count - 3)) for sign in (-1, 1))
    return f"over encodings [{', '.join(f'{end:.2f}' for end in ends)}] (Fisher's z), and {exact}"


def anchor(systems: Sequence[SeededSystem]) -> tuple[str, str]:
    """Exact match on SCAN, by the length of the output; before it, what to say if it is low."""
    test = scored(systems, WHOLE, [32, 40], ["exact"], side="reference")
    lines = [["encoding", *(f"{row.name} actions ({row.pairs:,})" for row in test.filled), "seeds"]]
    for s, system in enumerate(systems):
        scores = [row.cells[s].scores["exact"] for row in test.filled]
        cells = [f"{number(score.mean)} {score_interval(score)}" for score in scores]
        lines.append([f"`{system.label}`", *cells, seeds(scores[-1])])
    of_anchor = next(s for s, system in enumerate(systems) if system.label == ANCHORED)
    reached = test.rows[-1].cells[of_anchor].scores["exact"].mean
    low = (
        f"**The anchor does not hold: on SCAN, `{ANCHORED}` reaches {reached:.0f} % exact match, "
        f"published are {PUBLISHED:.0f} %.**"
    )
    return low if reached < 90 else "", (
        "Exact match in %, trained up to 26 actions, by actions of the reference; layers "
        f"share their weights. Published for relative positions: {PUBLISHED:.0f} % (Csordás et al. "
        "2021; 50,000 updates of 256 lines, ours 20,000 of 1,500 tokens).\n\n"
        f"{markdown_table(lines)}"
    )
