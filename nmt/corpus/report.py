"""The pairs that were kept or dropped: counted by reason and source length, shown as a table."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from logging import INFO, WARNING
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.pairs import SIDES, Pairs
from nmt.text.side import Side, Sides
from nmt.text.unigram import language_codes
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
TAGGED, ALL_UNKNOWN = "tagged_already_lines", "unknown_alone_lines"  # changes that are warned of
REJOINED, OTHERWISE = "rejoined_lines", "rejoined_otherwise_lines"  # of some lines, see `passes`

MUCH_DROPPED = 0.5  # a share of the pairs to warn of
MUCH_CHANGED, FEW = 0.05, 20  # a share of the lines; so many that it says something
MUCH_UNKNOWN = 0.05  # a share of the pieces: that of a language with some rare characters is 0.01
BLOCK = 2**18  # pairs that are looked through at a time, as all may exceed the memory

log = logging.getLogger(__name__)
Counts: TypeAlias = Counter[tuple[str, str, str]]  # by corpus ("": a single one), outcome, measure


def count_rows(store: Pairs, rows: NDArray[np.integer[Any]]) -> dict[str, int]:
    tokens = (int(store.lengths[side][rows].sum()) for side in SIDES)
    return dict(zip(MEASURES, (len(rows), *tokens), strict=True))


def say_why_dropped(counts: Counts, corpus: str) -> str:
    why = max(REMEDIES, key=lambda name: counts[corpus, name, "pairs"])
    return f"most are dropped as {why}; {REMEDIES[why]}"


def report_split(
    counts: Counts, changes: Sequence[Counter[str]], store: Pairs, sides: Sides
) -> dict[str, Any]:
    """Turn the counts of train or dev into plain values; `changes`: of the text, by side."""
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
        "text": {},
        "unknown_share": {},
        "longest": {side: int(store.lengths[side].max()) for side in SIDES},
    }
    for name, side, of_side in zip(SIDES, sides, changes, strict=True):
        pieces, lines = _count_unknown(store, name, side)
        report["unknown_share"][name] = pieces / max(int(store.lengths[name].sum(dtype=int)), 1)
        report["text"][name] = dict(sorted((of_side + Counter({ALL_UNKNOWN: lines})).items()))
    return report


def _sum_up(counts: Counts, corpus: str) -> dict[str, Any]:
    """Name the counts of a corpus: in all, those that were kept, and the others by their reason."""
    rows = {name: {m: counts[corpus, name, m] for m in MEASURES} for name in OUTCOMES}
    total = {m: sum(row[m] for row in rows.values()) for m in MEASURES}
    return {"total": total, "kept": rows.pop(KEPT), "dropped": rows}


def _count_unknown(store: Pairs, name: str, side: Side) -> tuple[int, int]:
    """Count the unknown pieces of a side, and the lines of which `Side.is_unknown` is true."""
    pieces = lines = 0
    blank = [*side.blank]
    for start in range(0, len(store), BLOCK):
        ends = store.offsets[name][start : start + BLOCK + 1].astype(np.int64)
        ids, starts = store.ids[name][ends[0] : ends[-1]], ends[:-1] - ends[0]
        unknown = ids == UNK
        has_other = np.logical_or.reduceat(~np.isin(ids, blank), starts)
        pieces += int(unknown.sum())
        lines += int((np.logical_or.reduceat(unknown, starts) & ~has_other).sum())
    return pieces, lines


def count_symbols(train: Pairs, dev: Pairs, source: Side) -> dict[str, Any]:
    """Compare the symbols that sources begin with: tags of corpora, codes of languages, and others.

    untagged: sources of `dev` without one, where all of `train` have one. absent: each symbol that
    sources of `train` begin with and none of `dev`, and how many of `train` do.
    """
    symbols = source.vocabulary.ids(source.segmenter.tokenizer.symbols)[:-1]
    known = {*symbols, *language_codes(source.vocabulary).values()} - {UNK}
    (of_train, plain), (of_dev, untagged) = (_count_leading(p, [*known]) for p in (train, dev))
    absent = {i: number for i, number in of_train.items() if i not in of_dev}
    names = source.vocabulary.pieces(absent)
    return {
        "untagged": 0 if plain else untagged,
        "absent": dict(zip(names, absent.values(), strict=True)),
    }


def _count_leading(pairs: Pairs, symbols: list[int]) -> tuple[Counter[int], int]:
    """How many sources begin with each symbol (several may follow each other), and with none."""
    counts, tagged = Counter[int](), 0
    at = pairs.offsets["source"][:-1].astype(np.int64)
    while len(at := at[np.isin(pairs.ids["source"][at], symbols)]):
        counts.update(pairs.ids["source"][at].tolist())
        tagged = tagged or len(at)
        at = at + 1
    return counts, len(pairs) - tagged


def log_remarks(report: Mapping[str, Any]) -> None:
    """Log a line for each text of a corpus; warn where much was dropped or is unknown."""
    for split in ("train", "dev"):
        for level, remark in chain(
            _sum_up_drops(split, report[split]), _find_flaws(split, report[split])
        ):
            log.log(level, "%s text: %s", split, remark)


def _sum_up_drops(split: str, counted: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Say which shares of a text are kept, dropped and unknown, each with its level."""
    kept, pairs = counted["kept"]["pairs"], counted["total"]["pairs"]
    dropped = Counter({why: counts["pairs"] for why, counts in counted["dropped"].items()})
    held = dropped.pop(HELD_OUT, 0)
    pairs -= held
    shares = {why: count / pairs for why, count in dropped.most_common() if count}
    line = f"{kept:,} of {pairs:,} pairs kept"
    line += f"; dropped: {_join_shares(shares)}" if shares else ""
    line += f"; {HELD_OUT}: {held:,}" if held else ""
    if split == "dev":
        line += f"; unknown pieces: {_join_shares(counted['unknown_share'])}"
    yield INFO, line
    if (lost := (pairs - kept) / pairs) >= MUCH_DROPPED:
        why = next(iter(shares))
        most = f"most of them as {why}; {REMEDIES[why]}"
        yield WARNING, f"{100 * lost:.1f} % of its pairs are dropped, {most}"
    for side, share in counted["unknown_share"].items():
        if share >= MUCH_UNKNOWN:
            question = "is it in the language and the script of the training text?"
            yield WARNING, f"{100 * share:.1f} % of its {side} pieces are unknown; {question}"


def _join_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())


def _find_flaws(split: str, counted: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Say of which lines a model learns or shows nothing, or too much, each with its level."""
    pairs, text = counted["kept"]["pairs"], counted["text"]
    for side, changes in text.items():
        if alone := changes.get(ALL_UNKNOWN):
            yield WARNING, f"of {alone:,} of its {pairs:,} {side} lines, all pieces are unknown"
    tried, changed = text["target"].get(REJOINED, 0), text["target"].get(OTHERWISE, 0)
    if split == "train" and tried >= FEW and changed >= MUCH_CHANGED * tried:
        lines = f"{changed} of {tried} target lines tried are another text"
        joined = "once their words are joined again, as in translations"
        yield WARNING, f"{lines} {joined}; segmenter.tokenizer=none leaves text as it is"
    if tagged := text["source"].get(TAGGED):
        began = f"{tagged:,} of its sources began with the tag of their corpus"
        yield WARNING, f"{began}; it is there once"
    if untagged := counted.get("untagged"):
        sources = f"{untagged:,} of its {pairs:,} sources do not begin with a tag"
        yield WARNING, f"{sources}, as all training text does"
    if absent := counted.get("absent"):
        symbols = ", ".join(f"{symbol} ({n:,} pairs)" for symbol, n in absent.items())
        yield INFO, f"no source begins with {symbols}, as sources of the training text do"
    if known := counted.get("known"):
        shared = f"{known:,} of its {pairs:,} pairs are also training pairs"
        yield WARNING, f"{shared}; its scores are too good"


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
        for side, changes in counted["text"].items():
            share = 100 * counted["unknown_share"][side]
            lines.append(f"{_row(f'unknown, {side}', f'{share:.3f}')} %")
            for change, count in changes.items():
                lines.append(_row(f"{change.replace('_', ' ')}, {side}", f"{count:,}"))
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
