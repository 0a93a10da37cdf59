"""Tables of what is lost: its parts, the places in joined lines, and the remedy."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nmt.compare import notation
from nmt.compare.arrival import pooled_shares
from nmt.compare.losses import CAUSES
from nmt.compare.notation import EMPTY, OF_LOSSES, number
from nmt.compare.report import Share
from nmt.compare.significance import Floats
from nmt.compare.text.columns import markdown_table
from scripts.longtext.plan import CONTRASTS, KEPT, LONGEST, REMEDY
from scripts.longtext.score_tables import seeds
from scripts.longtext.systems import (
    EXPLORATORY,
    SEED,
    ByRun,
    Estimate,
    SeededSystem,
    bleu_by_run,
    estimates,
    far_lines,
    lengths,
    losses_by_run,
    scored,
)
from scripts.longtext.texts import TIMES, WHOLE

DIFFER = ("place", "content")  # claim (b) of the plan
KEPT_ALONE = f"{KEPT}-share0"


def decomposition(systems: Sequence[SeededSystem]) -> str:
    """End sign, place and content, and how encodings differ in the last two."""
    parts = {name: estimates(values) for name, values in losses_by_run(systems).items()}
    tests = len(CONTRASTS) * len(DIFFER)
    differences = [["contrast", *(f"{name}, %" for name in DIFFER)]]
    for first, base in CONTRASTS:
        both = [parts[name][first] - parts[name][base] for name in DIFFER]
        cells = [difference.percent().shown("+z.1f", tests) for difference in both]
        differences.append([f"`{first}` - `{base}`", *cells])
    return (
        f"{causes(parts)}\n\nDifferences in place and content; all {tests} intervals hold "
        f"together in 95 %:\n\n{markdown_table(differences)}"
    )


def causes(parts: Mapping[str, Mapping[str, Estimate]]) -> str:
    """What is lost within the trained length and beyond it, and to which causes: part -> label."""
    lines = [["encoding", *OF_LOSSES.values()]]
    for label in parts["beyond"]:
        shares = {name: parts[name][label].within(-(name in CAUSES), 1) for name in OF_LOSSES}
        lines.append([f"`{label}`", *(share.percent().shown() for share in shares.values())])
    return (
        "Of the references' character 6-grams, in %; end sign + place + content = lost beyond - "
        "lost within ([what these mean](../evaluate.md#causes-of-the-loss---lost)).\n\n"
        f"{markdown_table(lines)}"
    )


def by_place(part: str, systems: Sequence[SeededSystem]) -> str:
    """What arrives of each part of joined lines, by their number."""
    *fewer, most = TIMES[part]
    columns = [(k, k) for k in fewer] + [(place, most) for place in range(1, most + 1)]
    lines = [["encoding", *(f"{place} of {k}" for place, k in columns), "last left out, %"]]
    shares = [arrived(systems, place, k) for place, k in columns]
    for s, system in enumerate(systems):
        cells = [number(100 * found[s].mean) for found in shares[:-1]]
        cells += [notation.share(shares[-1][s]), number(100 * last_left_out(system, most))]
        lines.append([f"`{system.label}`", *cells])
    return (
        "Of the 6-grams of each part that no other part has, those that arrive, in %, by the "
        f"part's place and the number of lines that were joined.\n\n{markdown_table(lines)}"
    )


def arrived(systems: Sequence[SeededSystem], place: int, k: int) -> list[Share]:
    """What arrives of the part at a place (from 1) of lines that were joined of k."""
    counts = [
        [table[:, place - 1, :2].astype(np.float64) for table in s.tables(f"joined{k}", "parts")]
        for s in systems
    ]
    shares = pooled_shares(counts, EXPLORATORY, SEED)
    assert all(shares), "each part has text"
    return [share for share in shares if share]


def last_left_out(system: SeededSystem, k: int) -> float:
    """In which share of the lines the last of k parts was left out, of those that tell."""
    tables = np.concatenate(system.tables(f"joined{k}", "parts"))
    left_out = tables[tables[:, k - 1].any(axis=1), k - 1, 3]  # of lines that have so many parts
    return float((left_out == 1).sum() / (left_out >= 0).sum())


def remedy(systems: Sequence[SeededSystem]) -> str:
    """What joined lines win beyond the trained length, and what they cost below it."""
    far = far_lines(systems, REMEDY)
    within, beyond = (bleu_by_run(systems, WHOLE, lines) for lines in (~far, far))
    four = np.ones(len(lengths(systems, "joined4")), dtype=bool)
    joined, lost = bleu_by_run(systems, "joined4", four), losses_by_run(systems)
    loss = {label: lost["beyond"][label] - lost["within"][label] for label in within}
    rows = [(label, *label.split("-share")) for label in within]
    alone = {label: f"{encoding}-share0" for label, encoding, share in rows if share != "0"}
    gain = paired(beyond, alone, np.subtract)
    others = [label for label in within if label != KEPT_ALONE]
    price = paired(within, dict.fromkeys(others, KEPT_ALONE), np.subtract)
    gone = paired(loss, alone, lambda now, before: 1 - now / before)
    known = estimates(loss)
    lines = [["encoding", "joined share", f"BLEU beyond {LONGEST[REMEDY]}", "its seeds", "gain"]]
    lines[0] += ["length ratio", "repeated, %", "BLEU within", "price", "BLEU, four joined"]
    lines[0] += ["loss, %", "of the loss gone, %"]
    levels = [estimates(values) for values in (beyond, within, joined)]
    cells = scored(systems, WHOLE, [LONGEST[REMEDY]], ["BLEU"], samples=1).rows[1].cells
    for system, cell, (label, encoding, share) in zip(systems, cells, rows, strict=True):
        far_bleu, near_bleu, four_bleu = (level[label].within(0, 100).shown() for level in levels)
        line = [far_bleu, seeds(cell.scores["BLEU"]), EMPTY, number(cell.ratio, 2)]
        line += [number(100 * system.mean_share(WHOLE, "repeats", far)), near_bleu]
        line += [price[label].shown("+z.1f") if label in price else EMPTY, four_bleu]
        line += [known[label].percent().shown(), EMPTY]
        if label in alone:
            line[2] = gain[label].shown("+z.1f")
            if known[alone[label]].interval()[0] > 0:
                line[-1] = gone[label].percent().shown("z.0f")
        lines.append([f"`{encoding}`", share, *line])
    return (
        f"450 updates from the {len(systems[0].runs)} `{KEPT}` parents of C, at a peak rate of "
        "5e-4 where the encoding is kept and of 1e-3 where it is replaced. Gain, and what is gone "
        "of the loss, are differences from the same encoding and parent without joined lines; the "
        f"price is the difference from `{KEPT}` and the same parent without joined lines, on lines "
        f"of up to {LONGEST[REMEDY]} pieces. Loss: of the references' 6-grams, lost beyond less "
        "lost within. Length ratio and repeated 4-grams are of the longer lines.\n\n"
        f"{markdown_table(lines)}\n\n{planned_gain(beyond, gain)}\n\n"
        f"{causes({name: estimates(values) for name, values in lost.items()})}"
    )


def planned_gain(beyond: ByRun, gain: Mapping[str, Estimate]) -> str:
    """The planned contrast, by what all gains deviate and by what its own do."""
    label = f"{KEPT}-share0.5"
    (alone,) = paired(beyond, {label: KEPT_ALONE}, np.subtract).values()
    pooled_p, p = (notation.p_value(estimate.p()) for estimate in (gain[label], alone))
    return (
        f"Planned contrast: gain of `{KEPT}` at a share of .5 has p {pooled_p}; with the deviation "
        f"of its own seeds alone it is {alone.shown('+z.1f')}, p {p}."
    )


def paired(
    values: ByRun, alone: dict[str, str], compare: Callable[[Floats, Floats], Floats]
) -> dict[str, Estimate]:
    """How runs compare with those of the same seed, and so of the same parent, without remedy."""
    return estimates({label: compare(values[label], values[base]) for label, base in alone.items()})
