"""Text that is lost in translation: how much, in which part of a line, and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmt.evaluation.metrics import Floats, Lines, Metric, ratio
from nmt.evaluation.report import BEYOND, WITHIN, Figure
from nmt.evaluation.significance import figures, resample

ORDER = 6
"""Length of the character n-grams that show what is lost: a word or so.

Shorter ones occur by chance, the more so the longer the text: unrelated sentences of English manual
pages (man-de-en) share 34 % of the n-grams of orders 1 to 6 where eight are joined, but 6 % of the
6-grams.
"""
ORDERS = range(1, 7)
"""Orders of the n-grams that tell whether a part was left out, as in chrF (Popović 2015).

Single lines are judged, for which 6-grams are too few: they take twice as many whole halves for
missing ones.
"""
LEFT_OUT = 1 / 3
"""Recall of a part, over that of the line's best part, below which it was left out.

Tried on 318 pairs of English sentences (the test part of man-de-en) whose poor translations were
made of the references (recall 0.38): of the second halves that were cut off, 97.5 % were found; of
the whole ones, 1.9 % were taken for missing (with 1/2: 98.1 % and 9.1 %).
"""
LOST = Metric(
    "lost 6-grams", "share of the references' character 6-grams that are missing", "share", False
)
Parts = Sequence[Sequence[str]]  # of each joined line: the reference sentences that it consists of


def ngrams(text: str, orders: Iterable[int] = (ORDER,)) -> Counter[str]:
    """Character n-grams, counted, without white space."""
    letters = "".join(text.split())
    return Counter(letters[i : i + n] for n in orders for i in range(len(letters) - n + 1))


def distinctive_ngrams(
    parts: Sequence[str], orders: Sequence[int] = (ORDER,)
) -> list[Counter[str]]:
    """The n-grams of each part that no other part has, counted."""
    counted = [ngrams(part, orders) for part in parts]
    parts_with = Counter(gram for grams in counted for gram in grams)
    return [
        Counter({gram: n for gram, n in grams.items() if parts_with[gram] == 1})
        for grams in counted
    ]


def lost_text(references: Lines) -> Metric:
    """The share of the references' character 6-grams that are missing in the translations."""
    expected = list(map(ngrams, references))

    def count(lines: Lines) -> Floats:
        pairs = zip(expected, map(ngrams, lines), strict=True)
        return np.array([_lost_and_all(*pair) for pair in pairs], np.float64).reshape(-1, 2)

    return replace(LOST, counts=count)


# Joined lines, part by part

PARTS = "parts"  # counts of all parts of a line
PART_METRICS = (  # two columns each
    Metric("arrived", "share of a part's 6-grams that arrived", "share", True),
    Metric("left out", "share of the lines in which a part was left out", "share", False),
    Metric("surplus", "surplus 6-grams of a part, over the 6-grams that it has", "ratio", False),
)


def parts_of_lines(parts: Parts) -> Metric:
    """Counts for each part of joined lines: [lines, parts, 2 columns for each of PART_METRICS].

    Counted are 6-grams of a part that no other part of its line has: how many arrived, and how
    often the translation has one of them more often than the reference. See `parts_left_out`.
    """

    def count(lines: Lines) -> Floats:
        counts = np.zeros((len(lines), max(map(len, parts)), 2 * len(PART_METRICS)))
        for row, line, references in zip(counts, lines, parts, strict=True):
            output, left_out = ngrams(line), parts_left_out(line, references)
            for number, expected in enumerate(distinctive_ngrams(references)):
                total, out = expected.total(), left_out[number]
                surplus = sum(max(0, output[gram] - n) for gram, n in expected.items())
                arrived = total - (expected - output).total()
                row[number] = (arrived, total, bool(out), out is not None, surplus, total)
        return counts

    return Metric(PARTS, "", counts=count)


def counts_of_part(number: int, run: Mapping[str, Floats]) -> dict[str, Floats]:
    """The counts that PART_METRICS need of one run, for part `number` of each line."""
    table = run[PARTS][:, number]
    return {m.name: table[:, 2 * n : 2 * n + 2] for n, m in enumerate(PART_METRICS)}


def parts_left_out(hypothesis: str, references: Sequence[str]) -> list[bool | None]:
    """Whether each part of a joined line was left untranslated; None: it cannot be told.

    The recall of a part is the share of its character n-grams, of those that no other part has,
    that stands anywhere in the hypothesis. The part was left out if that is zero, or below a third
    (LEFT_OUT) of the recall of the line's best part.
    """
    output = ngrams(hypothesis, ORDERS)
    recalls = [
        (grams.total() - (grams - output).total()) / grams.total() if grams else None
        for grams in distinctive_ngrams(references, ORDERS)
    ]
    best = max((recall for recall in recalls if recall is not None), default=0.0)
    return [
        None if recall is None else not recall or recall < LEFT_OUT * best for recall in recalls
    ]


# Beyond the trained length: why

CAUSE_METRICS = (
    Metric("lost within", "share of 6-grams lost of lines within each trained length", "share"),
    Metric("lost beyond", "lost of longer lines: end sign + place + content more", "share"),
    Metric("end sign", "lost beyond, less what is lost with the references' lengths", "points"),
    Metric("place", "lost with the references' lengths, less lost of the beginnings", "points"),
    Metric("content", "lost of the beginnings, less lost within", "points"),
)


class LossCounts(NamedTuple):
    """Counts of one run, from which all CAUSE_METRICS follow: 6-grams that are lost, and all."""

    within: Floats  # [lines, 2] of lines within the trained length
    beyond: Floats  # [3, lines, 2] of longer ones: free search, forced lengths, of the beginnings

    @property
    def is_divisible(self) -> bool:
        """Whether there are lines both within and beyond the trained length, and text to lose."""
        return bool(self.within[:, 1].sum() and self.beyond[2, :, 1].sum())


def causes_of_loss(
    test: str,
    labels: Sequence[str],
    counts: Sequence[Sequence[LossCounts]],
    samples: int,
    seed: int,
) -> list[Figure]:
    """What each system loses of lines longer than any in its training, and why.

    `counts` has the runs of each system, and none of a system that is left out. The loss of some
    lines is the share of their references' 6-grams that is lost. The beginning of a reference is as
    much of it as the trained length is of the line's; only 6-grams that the rest of the reference
    does not have are counted. With lines pooled:

    - within: the loss of lines within the trained length, free search;
    - beyond: the loss of longer lines, free search;
    - end sign: beyond, less the loss of the same lines with forced lengths;
    - place: this loss with forced lengths, less the loss of the beginnings alone;
    - content: the loss of the beginnings with forced lengths, less `within`.

    So end sign + place + content = beyond - within. Lines within and beyond are drawn apart.

    What this cannot separate: a forced length tells the model how long the reference is, which
    counts as `end sign`; an output that is too long has more room for n-grams, which forcing takes
    from it, so that `end sign` may be negative; long lines may be harder in other ways than by
    length, which counts as `content`.
    """
    systems = dict(zip(labels, counts, strict=True))
    systems = {s: runs for s, runs in systems.items() if runs and all(r.is_divisible for r in runs)}
    values = [np.array([_divide(run, samples, seed) for run in runs]) for runs in systems.values()]
    rows = []
    for number, metric in enumerate(CAUSE_METRICS if systems else ()):
        about = [
            {"test": test, "group": BEYOND, "system": label, "pairs": len(runs[0].beyond[0])}
            if number
            else {"test": test, "group": WITHIN, "system": label, "pairs": len(runs[0].within)}
            for label, runs in systems.items()
        ]
        rows += figures(metric, [of[:, number] for of in values], about, seed, is_tested=False)
    return rows


def count_losses(
    references: Lines, lengths: Sequence[int], longest: int, free: Lines, forced: Lines
) -> LossCounts:
    """Count the losses of one run, by free search and with forced lengths."""
    within, beyond = list[list[int]](), list[list[list[int]]]()
    for reference, length, *outputs in zip(references, lengths, free, forced, strict=True):
        whole, output, forced_output = map(ngrams, (reference, *outputs))
        if length <= longest:
            within.append(_lost_and_all(whole, output))
            continue
        letters = "".join(reference.split())
        cut = round(len(letters) * longest / length)
        beginning, _ = distinctive_ngrams([letters[:cut], letters[cut:]])
        pairs = (whole, output), (whole, forced_output), (beginning, forced_output)
        beyond.append([_lost_and_all(*pair) for pair in pairs])
    table = np.array(beyond, np.float64).reshape(-1, 3, 2)
    return LossCounts(np.array(within, np.float64).reshape(-1, 2), table.swapaxes(0, 1))


def _lost_and_all(expected: Counter[str], output: Counter[str]) -> list[int]:
    return [(expected - output).total(), expected.total()]


def _divide(counts: LossCounts, samples: int, seed: int) -> list[Floats]:
    """The CAUSE_METRICS of one run, of all lines and of each bootstrap draw: [1 + samples] each."""
    (within,) = _shares([counts.within], samples, seed)
    free, forced, beginning = _shares(counts.beyond, samples, seed + 1)
    return [within, free, free - forced, forced - beginning, beginning - within]


def _shares(tables: Iterable[Floats], samples: int, seed: int) -> Iterator[Floats]:
    """The lost share of each table, over all lines and over each draw; all have the same draws."""
    tables = list(tables)
    for table, drawn in zip(tables, resample(tables, samples, seed), strict=True):
        shares = np.array([ratio(total) for total in (table.sum(0), *drawn)])
        yield np.where(np.isnan(shares), shares[0], shares)  # a draw without any n-gram
