"""The pairs that were kept or dropped: counted by reason and source length, shown as a table."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.pairs import SIDES, Pairs
from nmt.text.vocab import UNK

RANGES = ("0-25", "26-50", "51-75", "76-100", "101-150", ">150")
UPPER = np.array([25, 50, 75, 100, 150])  # last length of each range but the open one
REMEDIES = {
    "empty side": "are the two files parallel?",
    "too long": "see data.max_length",
    "too many bytes": "see data.max_line_bytes",
    "invalid UTF-8": "which encoding has the text?",
    "unlike lengths": "see data.max_ratio",
}
KEPT, HELD_OUT = "kept", "held out"  # as development text: not lost
EMPTY, TOO_LONG, TOO_MANY_BYTES, INVALID, UNLIKE = REMEDIES
OUTCOMES = (KEPT, *REMEDIES, HELD_OUT)
MEASURES = ("pairs", "source_tokens", "target_tokens")
BLOCK = 2**24  # ids that are looked through at a time, as all may exceed the memory

log = logging.getLogger(__name__)
Counts: TypeAlias = Counter[tuple[str, str, str]]  # by corpus ("": a single one), outcome, measure


def count_rows(store: Pairs, rows: NDArray[np.integer[Any]]) -> dict[str, int]:
    tokens = (int(store.lengths[side][rows].sum()) for side in SIDES)
    return dict(zip(MEASURES, (len(rows), *tokens), strict=True))


def say_why_dropped(counts: Counts, corpus: str) -> str:
    why = max(REMEDIES, key=lambda name: counts[corpus, name, "pairs"])
    return f"most are dropped as {why}; {REMEDIES[why]}"


def report_split(counts: Counts, store: Pairs) -> dict[str, Any]:
    """Turn the counts of train or dev into plain values."""
    total: Counts = Counter()
    for (_, outcome, measure), number in counts.items():
        total["", outcome, measure] += number
    corpora = store.corpora.names if store.corpora else ()
    ranges = np.searchsorted(UPPER, store.lengths["source"])  # [pair]
    report = {
        **({"corpora": {name: _sum_up(counts, name) for name in corpora}} if corpora else {}),
        **_sum_up(total, ""),
        "by_source_length": {
            name: count_rows(store, np.flatnonzero(ranges == number))
            for number, name in enumerate(RANGES)
        },
        "unknown_share": {},
        "longest": {side: int(store.lengths[side].max()) for side in SIDES},
    }
    for name in SIDES:
        ids, pieces = store.ids[name], int(store.lengths[name].sum(dtype=int))
        blocks = (ids[start : start + BLOCK] for start in range(0, len(ids), BLOCK))
        unknown = sum(int((block == UNK).sum()) for block in blocks)
        report["unknown_share"][name] = unknown / max(pieces, 1)
    return report


def _sum_up(counts: Counts, corpus: str) -> dict[str, Any]:
    """Name the counts of a corpus: all pairs, kept ones, and dropped ones by reason."""
    rows = {name: {m: counts[corpus, name, m] for m in MEASURES} for name in OUTCOMES}
    total = {m: sum(row[m] for row in rows.values()) for m in MEASURES}
    return {"total": total, "kept": rows.pop(KEPT), "dropped": rows}


def log_counts(report: Mapping[str, Any]) -> None:
    """Log the pairs of each text that are kept and dropped; warn of repeated ones."""
    for split in ("train", "dev"):
        counted = report[split]
        kept, pairs = counted["kept"]["pairs"], counted["total"]["pairs"]
        dropped = Counter({why: counts["pairs"] for why, counts in counted["dropped"].items()})
        held = dropped.pop(HELD_OUT, 0)
        pairs -= held
        line = f"{split} text: {kept:,} of {pairs:,} pairs kept"
        if shares := {why: count / pairs for why, count in dropped.most_common() if count}:
            line += f"; dropped: {_join_shares(shares)}"
        line += f"; {HELD_OUT}: {held:,}" if held else ""
        if split == "dev":
            line += f"; unknown pieces: {_join_shares(counted['unknown_share'])}"
        log.info("%s", line)
    if overlap := report["dev"].get("known"):
        pairs = report["dev"]["kept"]["pairs"]
        log.warning("dev text: %d of its %d pairs are also training pairs", overlap, pairs)


def _join_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())


def describe(report: Mapping[str, Any]) -> str:
    lines = []
    for split in ("train", "dev"):
        counted = report[split]
        rows = {name: counted[name] for name in ("total", "kept")}
        for name, counts in counted.get("corpora", {}).items():
            rows |= {f"{which}, corpus {name}": counts[which] for which in ("total", "kept")}
        groups = {f"dropped: {why}": counts for why, counts in counted["dropped"].items()}
        for name, counts in counted["by_source_length"].items():
            groups[f"kept, source {name}"] = counts
        rows |= {name: counts for name, counts in groups.items() if counts["pairs"]}
        lines.append(_row(split, "pairs", "source tokens", "target tokens"))
        for name, counts in rows.items():
            lines.append(_row(name, *(f"{counts[measure]:,}" for measure in MEASURES)))
        for side, share in counted["unknown_share"].items():
            lines.append(f"{_row(f'unknown, {side}', f'{100 * share:.3f}')} %")
        lines.append("")
    sizes = report["vocabulary"]
    lines += [
        _row("repeated pairs in train", f"{report['train']['duplicates']:,}"),
        _row("dev pairs also in train", f"{report['dev']['known']:,}"),
        _row("vocabulary, source/target", f"{sizes['source']:,}", f"{sizes['target']:,}"),
    ]
    return "\n".join(lines)


def _row(name: str, first: str, *cells: str) -> str:
    return f"{name:<26}{first:>11}" + "".join(f"{cell:>16}" for cell in cells)
