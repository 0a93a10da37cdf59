"""Tables of what is lost: its parts, the places in joined lines, and the remedy."""

import math
from collections.abc import Sequence

import numpy as np

from nmt.compare.arrival import pooled_shares
from nmt.compare.losses import CAUSES, sampled_parts
from nmt.compare.notation import EMPTY, OF_LOSSES, number, share
from nmt.compare.report import Share
from nmt.compare.text.columns import markdown_table
from scripts.longtext.plan import LONGEST, REMEDY
from scripts.longtext.score_tables import CONTRASTS, contrast_table, seeds_of
from scripts.longtext.systems import (
    EXPLORATORY,
    SAMPLES,
    SEED,
    Estimate,
    System,
    estimates,
    far_lines,
    lengths,
)
from scripts.longtext.texts import TIMES, WHOLE

KEPT = "absolute"  # of a remedy: the parents' encoding


def decomposition(systems: Sequence[System]) -> str:
    """End sign, place and content, and how encodings differ in the last two."""
    parts = parts_of(systems)
    lines = [["encoding", *OF_LOSSES.values()]]
    for label, by_name in parts.items():
        least = {name: -1.0 if name in CAUSES else 0.0 for name in OF_LOSSES}
        cells = [by_name[name].percent(least[name]).shown() for name in OF_LOSSES]
        lines.append([f"`{label}`", *cells])
    known = [pair for pair in CONTRASTS if all(name in parts for name in pair)]
    names = ("place", "content")
    differences = [["contrast", *(f"{name}, %" for name in names)]]
    for first, base in known:
        cells = [
            (parts[first][name] - parts[base][name]).percent().shown("+z.1f", tests=8)
            for name in names
        ]
        differences.append([f"`{first}` - `{base}`", *cells])
    return (
        "Of the references' character 6-grams, in %; end sign + place + content = lost beyond - "
        "lost within ([what these mean](../evaluate.md#where-long-text-is-lost)).\n\n"
        f"{markdown_table(lines)}\n\nDifferences in place and content; the intervals of all eight "
        f"hold together in 95 %:\n\n{markdown_table(differences)}"
    )


def parts_of(systems: Sequence[System]) -> dict[str, dict[str, Estimate]]:
    """The parts of the losses by label and name."""
    counts = [[t.astype(np.float64) for t in s.table(WHOLE, "losses")] for s in systems]
    sampled = sampled_parts(counts, SAMPLES, SEED)
    return {
        system.label: {n: Estimate(float(v[0]), v[1:]) for n, v in by_name.items()}
        for system, by_name in zip(systems, sampled, strict=True)
    }


def places_of(part: str, systems: Sequence[System]) -> str:
    """What arrives of each part of joined lines, by their number."""
    *fewer, most = (k for k in TIMES[part] if k > 1)
    columns = [(k, k) for k in fewer] + [(place, most) for place in range(1, most + 1)]
    lines = [["encoding", *(f"{place} of {k}" for place, k in columns)]]
    shares = [arrived(systems, place, k) for place, k in columns]
    for s, system in enumerate(systems):
        cells = [number(100 * found[s].mean) for found in shares]
        last = shares[-1][s]
        lines.append([f"`{system.label}`", *cells[:-1], share(last)])
    return (
        "Of the 6-grams of each part that no other part has, those that arrive, in %, by the "
        f"part's place and the number of lines that were joined.\n\n{markdown_table(lines)}"
    )


def arrived(systems: Sequence[System], place: int, k: int) -> list[Share]:
    """What arrives of the part at a place (from 1) of lines that were joined of k."""
    counts = [
        [table[:, place - 1, :2].astype(np.float64) for table in s.table(f"joined{k}", "parts")]
        for s in systems
    ]
    shares = pooled_shares(counts, EXPLORATORY, SEED)
    assert all(shares), "each part has text"
    return [share for share in shares if share]


def remedy(systems: Sequence[System]) -> str:
    """What joined lines win beyond the trained length, and what they cost below it."""
    far = far_lines(systems, REMEDY)
    near_bleu, far_bleu = (estimates(systems, WHOLE, "BLEU", lines) for lines in (~far, far))
    four = np.ones(len(lengths(systems, "joined4")), dtype=bool)
    joined_bleu, losses = estimates(systems, "joined4", "BLEU", four), parts_of(systems)
    lines = [["encoding", "joined share", f"BLEU beyond {LONGEST[REMEDY]}", "BLEU within", "price"]]
    lines[0] += ["BLEU, four joined", "loss, %", "of the loss gone, %"]
    for system in systems:
        encoding, share_joined = system.label.split("-share")
        alone = f"{encoding}-share0"
        within, loss = near_bleu[system.label], loss_of(losses[system.label])
        price = gone = EMPTY
        if share_joined != "0" and alone in losses:
            price = (within - near_bleu[alone]).shown("+z.1f")
            gone = gone_of(loss, loss_of(losses[alone])).percent(-math.inf).shown("z.0f")
        cells = [far_bleu[system.label].shown(), within.shown(), price]
        cells += [number(joined_bleu[system.label].mean), number(100 * loss.mean), gone]
        lines.append([f"`{encoding}`", share_joined, *cells])
    planned = [(f"{KEPT}-share0.5", f"{KEPT}-share0")]
    return (
        f"450 updates from the `{KEPT}` parents of C; {seeds_of(systems)}. Price: BLEU within the "
        "trained length, less that of the same encoding without joined lines. Loss: of the "
        "references' 6-grams, lost beyond less lost within.\n\n"
        f"{markdown_table(lines)}\n\nPlanned contrast, BLEU beyond:\n\n"
        f"{contrast_table(far_bleu, planned)}"
    )


def loss_of(parts: dict[str, Estimate]) -> Estimate:
    """What is lost beyond the trained length and not within it."""
    return parts["beyond"] - parts["within"]


def gone_of(loss: Estimate, before: Estimate) -> Estimate:
    """The share of a loss that is gone."""
    return Estimate(1 - loss.mean / before.mean, 1 - loss.samples / before.samples)
