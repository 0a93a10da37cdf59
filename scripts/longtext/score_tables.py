"""Tables of scores: ranks, contrasts, lengths, the grammar against real text, and the anchor."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nmt.compare.notation import deviating, number, p_value, ranks
from nmt.compare.notation import interval as score_interval
from nmt.compare.ranks import spearman
from nmt.compare.significance import holm, interval
from nmt.compare.text.columns import markdown_table
from scripts.longtext.plan import GRAMMAR, LONGEST, MANUALS
from scripts.longtext.systems import SAMPLES, Estimate, System, estimates, far_lines, scored
from scripts.longtext.texts import WHOLE

CONTRASTS = (  # planned; the second is the baseline
    ("relative", "absolute"),
    ("rotary", "absolute"),
    ("relative_sinusoidal", "relative"),
    ("alibi_directional", "rotary"),
)
TITLES = {GRAMMAR: "embedded grammar", MANUALS: "manuals"}
PUBLISHED = 100.0  # exact match on SCAN beyond 26 actions: Csordás et al. (2021), abstract
BOUNDS = {GRAMMAR: [24, 48, 96, 144], MANUALS: [25, 50, 75, 100]}


def seeds_of(systems: Sequence[System]) -> str:
    """How many seeds there are, and what is missing."""
    counts = {len(system.runs) for system in systems}
    if len(counts) == 1:
        return f"{counts.pop()} seeds each"
    return "seeds: " + ", ".join(f"{system.label} {len(system.runs)}" for system in systems)


def ranking(part: str, systems: Sequence[System]) -> str:
    """Systems by BLEU beyond the trained length, and the planned contrasts."""
    far = far_lines(systems, part)
    metrics = [m for m in ("BLEU", "chrF2", "TER") if m in systems[0].runs[0].tests[WHOLE]]
    test = scored(systems, WHOLE, [LONGEST[part]], metrics, SAMPLES)
    near_row, far_row, _ = test.rows
    lines = [
        ["encoding", "rank", "BLEU beyond", "BLEU within", *(f"{m} beyond" for m in metrics[1:])]
    ]
    lines[0] += ["length ratio", "repeated, %", "perplexity", "updates", "parameters", "ms/update"]
    for system, near, cell in zip(systems, near_row.cells, far_row.cells, strict=True):
        line = [f"`{system.label}`", ranks(cell.scores["BLEU"])]
        for score in (cell.scores["BLEU"], near.scores["BLEU"]):
            line.append(f"{deviating(score.mean, score.deviation)} {score_interval(score)}")
        line += [number(cell.scores[metric].mean) for metric in metrics[1:]]
        line += [number(cell.ratio, 2), number(100 * system.mean_share(WHOLE, "repeats", far))]
        line += [number(perplexity(system, far), 2), f"{system.known('step'):,.0f}"]
        lines.append([*line, f"{system.known('parameters'):,.0f}", f"{1000 * system.seconds:.0f}"])
    contrasts = contrast_table(estimates(systems, WHOLE, "BLEU", far), CONTRASTS)
    opening = (
        f"BLEU of {far.sum():,} lines whose source is longer than {LONGEST[part]} pieces, and of "
        f"{(~far).sum():,} others; {seeds_of(systems)}. Length ratio, repeated 4-grams and "
        "perplexity of the references are of the longer lines."
    )
    return "\n\n".join([opening, markdown_table(lines), "Planned contrasts, BLEU:", contrasts])


def perplexity(system: System, lines: NDArray[np.bool_]) -> float:
    """Of the references by piece, lines pooled; the mean over runs."""
    sums = [t[lines].sum(axis=0, dtype=np.float64) for t in system.table(WHOLE, "likelihood")]
    return fmean(math.exp(-log_prob / pieces) for log_prob, pieces in sums)


def contrast_table(values: dict[str, Estimate], contrasts: Sequence[tuple[str, str]]) -> str:
    """Planned differences with their intervals and corrected p, of those that can be told."""
    known = [pair for pair in contrasts if all(name in values for name in pair)]
    corrected = holm([values[name].p(values[base]) for name, base in known])
    lines = [["contrast", "difference", "p, corrected"]]
    for (name, base), p in zip(known, corrected, strict=True):
        shown = (values[name] - values[base]).shown("+z.1f")
        lines.append([f"`{name}` - `{base}`", shown, p_value(p)])
    return markdown_table(lines)


def by_length(part: str, systems: Sequence[System], side: str) -> str:
    """BLEU in groups of lengths."""
    test = scored(systems, WHOLE, BOUNDS[part], ["BLEU"], side=side)
    lines = [["encoding", *(f"{row.name} ({row.pairs:,})" for row in test.filled)]]
    for s, system in enumerate(systems):
        scores = [row.cells[s].scores["BLEU"] for row in test.filled]
        cells = [f"{number(score.mean)} {score_interval(score)}" for score in scores]
        lines.append([f"`{system.label}`", *cells])
    return f"BLEU by {side} length in pieces (lines):\n\n{markdown_table(lines)}"


def against(grammar: Sequence[System], real: Sequence[System]) -> str:
    """The same encodings in both parts, and how alike their orders are."""
    common = [s.label for s in real if s.label in {g.label for g in grammar}]
    values = []
    for part, systems in ((GRAMMAR, grammar), (MANUALS, real)):
        chosen = [system for system in systems if system.label in common]
        values.append(estimates(chosen, WHOLE, "BLEU", far_lines(chosen, part)))
    lines = [["encoding", *(f"BLEU beyond, {title}" for title in TITLES.values())]]
    for label in sorted(common, key=lambda name: -values[1][name].mean):
        lines.append([f"`{label}`", *(number(part[label].mean) for part in values)])
    if len(common) < 4:
        return markdown_table(lines)
    columns = [
        np.stack([np.concatenate([[part[n].mean], part[n].samples]) for n in common])
        for part in values
    ]
    rho, *samples = spearman(*columns)
    low, high = interval(np.array(samples))
    middle = math.atanh(max(-0.999, min(0.999, rho)))
    ends = (math.tanh(middle + sign * 1.96 / math.sqrt(len(common) - 3)) for sign in (-1, 1))
    wide = ", ".join(f"{end:.2f}" for end in ends)
    return (
        f"{markdown_table(lines)}\n\nSpearman's rho of these {len(common)} encodings: {rho:.2f} "
        f"[{low:.2f}, {high:.2f}] over lines and seeds; over encodings [{wide}] (Fisher's z)."
    )


def anchor(systems: Sequence[System]) -> str:
    """Exact match on SCAN, by the length of the output, next to the published figure."""
    test = scored(systems, WHOLE, [32, 40], ["exact"], SAMPLES, side="reference")
    lines = [["encoding", *(f"{row.name} actions ({row.pairs:,})" for row in test.filled), "seeds"]]
    for s, system in enumerate(systems):
        scores = [row.cells[s].scores["exact"] for row in test.filled]
        cells = [f"{number(score.mean)} {score_interval(score)}" for score in scores]
        seeds = ", ".join(map(number, scores[-1].seeds))
        lines.append([f"`{system.label}`", *cells, seeds])
    best = max(cell.scores["exact"].mean for cell in test.rows[-1].cells)
    below = "" if best >= 90 else "**Below 90 %: this anchor does not hold.** "
    return (
        f"{below}Exact match in %, trained up to 26 actions, by actions of the reference; layers "
        f"share their weights. Published for relative positions: {PUBLISHED:.0f} % (Csordás et al. "
        "2021; 50,000 updates of 256 lines, ours 20,000 of 1,500 tokens).\n\n"
        f"{markdown_table(lines)}"
    )
