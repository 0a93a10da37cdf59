"""The pairs that were kept or dropped: counted by reason and source length, shown as a table."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES, Pairs
from nmt.text.side import Side
from nmt.text.unigram import language_codes
from nmt.text.vocab import UNK

RANGES = ("0-25", "26-50", "51-75", "76-100", "101-150", ">150")
UPPER = np.array([25, 50, 75, 100, 150])  # last length of each range but the open one
HELD_OUT = "held out"  # as development text: not lost
OUTCOMES = (
    *("kept", "empty side", "too long", "too many bytes", "invalid UTF-8", "unlike lengths"),
    HELD_OUT,
)
KEPT, EMPTY, TOO_LONG, TOO_MANY_BYTES, INVALID, UNLIKE, HELD = range(len(OUTCOMES))
TAGGED, ALL_UNKNOWN = "tagged_already_lines", "unknown_alone_lines"  # changes that are warned of
REJOINED, OTHERWISE = "rejoined_lines", "rejoined_otherwise_lines"  # of some lines, see `passes`
MEASURES = ("pairs", "source_tokens", "target_tokens")

MUCH_DROPPED = 0.5  # a share of the pairs to warn of
MUCH_CHANGED, FEW = 0.05, 20  # a share of the lines; so many that it says something
MUCH_UNKNOWN = 0.05  # a share of the pieces: that of a language with some rare characters is 0.01
REMEDIES = {
    "empty side": "are the two files parallel?",
    "too long": "see data.max_length",
    "too many bytes": "see data.max_line_bytes",
    "invalid UTF-8": "which encoding has the text?",
    "unlike lengths": "see data.max_ratio",
}

log = logging.getLogger(__name__)

Tally = NDArray[np.int64]  # [outcome, measure]; tallies of parts add up


def no_tally() -> Tally:
    """Return a tally of nothing."""
    return np.zeros((len(OUTCOMES), len(MEASURES)), np.int64)


def tally_of(
    source: NDArray[np.int64], target: NDArray[np.int64], outcome: NDArray[np.int64]
) -> Tally:
    """Count pairs and tokens, given each pair's lengths in pieces and its outcome [pair]."""
    tally = no_tally()
    for measure, counts in enumerate((np.ones_like(source), source, target)):
        np.add.at(tally[:, measure], outcome, counts)
    return tally


def tally_rows(store: Pairs, rows: NDArray[np.int64], outcome: int) -> Tally:
    """Count some pairs of a store [row] that have the same outcome."""
    source, target = (store.lengths[side][rows].astype(np.int64) for side in SIDES)
    return tally_of(source, target, np.full(len(rows), outcome))


def most_dropped(tally: Tally) -> str:
    """Why most of the pairs that are not kept were dropped, and where to look."""
    counts = {name: tally[OUTCOMES.index(name), 0] for name in REMEDIES}
    why = max(counts, key=lambda name: counts[name])
    return f"most are dropped as {why}; {REMEDIES[why]}"


def split_report(
    tallies: Mapping[str, Tally],
    changes: Mapping[str, Counter[str]],
    unknown: NDArray[np.bool_],
    store: Pairs,
) -> dict[str, Any]:
    """Turn the counts of train or dev into plain values.

    `tallies`: of each corpus by its name, which is empty if there is but one. `unknown`: whether
    all pieces are unknown [side, pair].
    """
    for side, lines in zip(SIDES, unknown.sum(1).tolist(), strict=True):
        changes[side].update({ALL_UNKNOWN: lines} if lines else {})
    tally = sum(tallies.values(), no_tally())
    corpora = {name: _counts(counts) for name, counts in tallies.items() if name}
    return {
        **({"corpora": corpora} if corpora else {}),
        **_counts(tally),
        "by_source_length": _count_ranges(store),
        "text": {side: dict(sorted(counts.items())) for side, counts in changes.items()},
        "unknown_share": {
            side: _count(store.ids[side], UNK) / max(int(tally[KEPT, measure]), 1)
            for measure, side in enumerate(SIDES, start=1)
        },
        "longest": {side: int(store.lengths[side].max()) for side in SIDES},
    }


def _count_ranges(store: Pairs) -> dict[str, dict[str, int]]:
    source, target = (store.lengths[side] for side in SIDES)
    rows = np.searchsorted(UPPER, source)  # [pair]
    counts = [np.bincount(rows, of_pair, len(RANGES)) for of_pair in (None, source, target)]
    named = zip(RANGES, np.transpose(counts).astype(int).tolist(), strict=True)
    return {name: dict(zip(MEASURES, of_range, strict=True)) for name, of_range in named}


def _count(ids: NDArray[np.integer[Any]], wanted: int) -> int:
    parts = np.array_split(ids, 1 + len(ids) // 2**24)  # of a file that may exceed the memory
    return sum(int(np.count_nonzero(part == wanted)) for part in parts)


def count_symbols(train: Pairs, dev: Pairs, source: Side) -> dict[str, Any]:
    """Compare the symbols that sources begin with: tags of corpora, codes of languages, and others.

    untagged: sources of `dev` without one, where all of `train` have one. absent: each symbol that
    sources of `train` begin with and none of `dev`, and how many of `train` do.
    """
    symbols = source.segmenter.tokenizer.symbols
    known = {*source.vocabulary.ids(symbols)[:-1], *language_codes(source.vocabulary).values()}
    known.discard(UNK)
    (of_train, plain), (of_dev, untagged) = (_count_leading(p, [*known]) for p in (train, dev))
    absent = {i: number for i, number in of_train.items() if i not in of_dev}
    names = source.vocabulary.pieces(absent)
    return {
        "untagged": 0 if plain else untagged,
        "absent": dict(zip(names, absent.values(), strict=True)),
    }


def _count_leading(pairs: Pairs, symbols: list[int]) -> tuple[dict[int, int], int]:
    """How many sources begin with each symbol (several may follow each other), and with none."""
    counts, tagged = Counter[int](), 0
    at = pairs.offsets["source"][:-1].astype(np.int64)
    while len(at := at[np.isin(pairs.ids["source"][at], symbols)]):
        ids, numbers = np.unique(pairs.ids["source"][at], return_counts=True)
        counts.update(dict(zip(ids.tolist(), numbers.tolist(), strict=True)))
        tagged = tagged or len(at)
        at = at + 1
    return counts, len(pairs) - tagged


def log_corpus(data: Data) -> None:
    """Log which text a corpus is."""
    if data.corpora:
        tagged = (f"{n} {c.tag}" if c.tag else n for n, c in sorted(data.corpora.items()))
        log.info("corpus: %s (%s)", data.name, ", ".join(tagged))
    else:
        log.info("corpus: %s (%s, %s)", data.name, data.train_source, data.train_target)


def warn_of_text(split: str, counted: Mapping[str, Any]) -> None:
    """Warn of lines of a split that a model learns or shows nothing from, with their number."""
    total = counted["kept"]["pairs"]
    for side, changes in counted["text"].items():
        if alone := changes.get(ALL_UNKNOWN):
            log.warning(
                "%s text: of %s of its %s %s lines, all pieces are unknown",
                *(split, f"{alone:,}", f"{total:,}", side),
            )
    changes = counted["text"]["target"]
    tried, changed = changes.get(REJOINED, 0), changes.get(OTHERWISE, 0)
    if split == "train" and tried >= FEW and changed >= MUCH_CHANGED * tried:
        log.warning(
            "%s text: %d of %d target lines tried are another text once their words are joined "
            "again, as in translations; segmenter.tokenizer=none leaves text as it is",
            *(split, changed, tried),
        )
    if tagged := counted["text"]["source"].get(TAGGED):
        log.warning(
            "%s text: %s of its sources began with the tag of their corpus; it is there once",
            *(split, f"{tagged:,}"),
        )
    if untagged := counted.get("untagged"):
        log.warning(
            "%s text: %s of its %s sources do not begin with a tag, as all training text does",
            *(split, f"{untagged:,}", f"{total:,}"),
        )
    if absent := counted.get("absent"):
        log.info(
            "%s text: no source begins with %s, as sources of the training text do",
            *(split, ", ".join(f"{symbol} ({n:,} pairs)" for symbol, n in absent.items())),
        )
    if known := counted.get("known"):
        log.warning(
            "%s text: %s of its %s pairs are also training pairs; its scores are too good",
            *(split, f"{known:,}", f"{total:,}"),
        )


def log_remarks(report: Mapping[str, Any]) -> None:
    """Log a line for each text of a corpus; warn where much was dropped or is unknown."""
    for split in ("train", "dev"):
        pairs, kept = (report[split][name]["pairs"] for name in ("total", "kept"))
        dropped = Counter({why: c["pairs"] for why, c in report[split]["dropped"].items()})
        held = dropped.pop(HELD_OUT, 0)
        pairs -= held
        shares = {why: count / pairs for why, count in dropped.most_common() if count}
        unknown = report[split]["unknown_share"]
        line = f"{split} text: {kept:,} of {pairs:,} pairs kept"
        if shares:
            line += f"; dropped: {_listed(shares)}"
        if held:
            line += f"; {HELD_OUT}: {held:,}"
        if split == "dev":
            line += f"; unknown pieces: {_listed(unknown)}"
        log.info("%s", line)
        warn_of_text(split, report[split])
        lost = (pairs - kept) / pairs
        if lost >= MUCH_DROPPED:
            why = next(iter(shares))
            log.warning(
                "%s text: %s of its pairs are dropped, most of them as %s; %s",
                *(split, _percent(lost), why, REMEDIES[why]),
            )
        for side in [side for side, share in unknown.items() if share >= MUCH_UNKNOWN]:
            log.warning(
                "%s text: %s of its %s pieces are unknown; "
                "is it in the language and the script of the training text?",
                *(split, _percent(unknown[side]), side),
            )


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def describe(report: Mapping[str, Any]) -> str:
    """Show a report as a short table."""
    lines = []
    for split in ("train", "dev"):
        counted = report[split]
        lines += [_row(split, "pairs", "source tokens", "target tokens")]
        lines += [_measured(name, counted[name]) for name in ("total", "kept")]
        lines += [
            _measured(f"{which}, corpus {name}", counts[which])
            for name, counts in counted.get("corpora", {}).items()
            for which in ("total", "kept")
        ]
        lines += [
            _measured(f"dropped: {why}", counts)
            for why, counts in counted["dropped"].items()
            if counts["pairs"]
        ]
        lines += [
            _measured(f"kept, source {name}", counts)
            for name, counts in counted["by_source_length"].items()
            if counts["pairs"]
        ]
        for side in ("source", "target"):
            share = counted["unknown_share"][side]
            lines.append(f"{f'unknown, {side}':<26}{100 * share:>11.3f} %")
            lines += [
                f"{change.replace('_', ' ') + ', ' + side:<26}{count:>11,}"
                for change, count in counted["text"][side].items()
            ]
        lines.append("")
    sizes = report["vocabulary"]
    lines.append(f"{'repeated pairs in train':<26}{report['train']['duplicates']:>11,}")
    lines.append(f"{'dev pairs also in train':<26}{report['dev']['known']:>11,}")
    lines.append(f"{'vocabulary, source/target':<26}{sizes['source']:>11,}{sizes['target']:>16,}")
    return "\n".join(lines)


def _counts(cells: NDArray[np.int64]) -> dict[str, Any]:
    """Name the counts [outcome, measure] of one row, with their total."""
    named = {
        name: dict(zip(MEASURES, cells[i].tolist(), strict=True)) for i, name in enumerate(OUTCOMES)
    }
    total = dict(zip(MEASURES, cells.sum(0).tolist(), strict=True))
    return {"total": total, "kept": named.pop(OUTCOMES[KEPT]), "dropped": named}


def _measured(name: str, counts: Mapping[str, int]) -> str:
    return _row(name, *(f"{counts[measure]:,}" for measure in MEASURES))


def _row(name: str, *cells: str) -> str:
    first, *rest = cells
    return f"{name:<26}{first:>11}" + "".join(f"{cell:>16}" for cell in rest)
