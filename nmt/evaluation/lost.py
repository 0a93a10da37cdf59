"""What of a text is lost in its translation: how much, of which part of a line, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation.metrics import Floats, Lines, Metric, ratio
from nmt.evaluation.report import BEYOND, WITHIN, Figure
from nmt.evaluation.significance import figures, resample

ORDER = 6
"""Length of the character n-grams that are counted: a word or so.

Shorter ones occur by chance, the more so the longer the text: unrelated sentences of English manual
pages (man-de-en) share 34 % of the n-grams of orders 1 to 6 where eight are joined, but 6 % of the
6-grams.
"""
ORDERS = range(1, 7)
"""Character n-grams that tell whether a part was left out: those of chrF (Popović 2015).

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
        return np.array([[(e - o).total(), e.total()] for e, o in pairs], np.float64).reshape(-1, 2)

    return replace(LOST, counts=count)


# Joined lines, part by part

PARTS = "parts"  # counts of all parts of a line
PLACE_METRICS = (  # two columns each
    Metric("arrived", "share of a part's 6-grams that arrived", "share", True),
    Metric("left out", "share of the lines in which a part was left out", "share", False),
    Metric("surplus", "6-grams of a part that are too many, over its own", "ratio", False),
)


def parts_of_lines(parts: Parts) -> Metric:
    """Counts for each part of joined lines: [lines, places, 2 columns for each of PLACE_METRICS].

    Counted are 6-grams of a part that no other part of its line has: how many arrived, and how
    often the translation has one of them more often than the reference. See `parts_left_out`.
    """

    def count(lines: Lines) -> Floats:
        counts = np.zeros((len(lines), max(map(len, parts)), 2 * len(PLACE_METRICS)))
        for row, line, references in zip(counts, lines, parts, strict=True):
            output, left_out = ngrams(line), parts_left_out(line, references)
            for place, expected in enumerate(distinctive_ngrams(references)):
                total, out = expected.total(), left_out[place]
                surplus = sum(max(0, output[gram] - n) for gram, n in expected.items())
                arrived = total - (expected - output).total()
                row[place] = (arrived, total, bool(out), out is not None, surplus, total)
        return counts

    return Metric(PARTS, "", counts=count)


def counts_at(place: int, run: Mapping[str, Floats]) -> dict[str, Floats]:
    """The counts that PLACE_METRICS need of one run's lines, for the parts at one place."""
    table = run[PARTS][:, place]
    return {m.name: table[:, 2 * n : 2 * n + 2] for n, m in enumerate(PLACE_METRICS)}


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
    Metric("lost beyond", "the same of lines beyond it: end sign + place + content more", "share"),
    Metric("end sign", "lost beyond, less what is lost with the references' lengths", "points"),
    Metric("place", "lost with these, less what is lost of the lines' beginnings", "points"),
    Metric("content", "lost of the beginnings, less lost within", "points"),
)


def causes_of_loss(
    test: str, labels: Sequence[str], counts: Sequence[Sequence[Floats]], samples: int, seed: int
) -> list[Figure]:
    """What each system loses of lines longer than any in its training, and why.

    `counts` are those of each system's runs (`loss_counts`); none of a system that is left out.
    The lost share of some lines is that of their references' 6-grams. The beginning of a reference
    is as much of it as the trained length is of the line's; only 6-grams that its rest does not
    have are counted of it. With lines pooled:

    - within: the lost share of lines within the trained length, free search;
    - beyond: that of the longer lines, free search;
    - end sign: beyond, less the lost share of the same lines with forced lengths;
    - place: that lost share with forced lengths, less that of the beginnings alone;
    - content: the lost share of the beginnings with forced lengths, less `within`.

    So end sign + place + content = beyond - within. Lines within and beyond are drawn apart.

    What this cannot separate: a forced length tells the model how long the reference is, which
    counts as `end sign`; an output that is too long has more room for n-grams, which forcing takes
    from it, so that `end sign` may be negative; long lines may be harder in other ways than by
    length, which counts as `content`.
    """
    systems = {s: runs for s, runs in enumerate(counts) if runs and all(map(is_divisible, runs))}
    parts = [
        np.array([parts_of_run(run, samples, seed) for run in runs]) for runs in systems.values()
    ]
    rows = []
    for number, metric in enumerate(CAUSE_METRICS if systems else ()):
        about = [
            {"test": test, "group": group, "system": labels[s], "pairs": int(lines.sum())}
            for s, runs in systems.items()
            for beyond in [_beyond(runs[0])]
            for group, lines in [(BEYOND, beyond) if number else (WITHIN, ~beyond)]
        ]
        rows += figures(metric, [of[:, number] for of in parts], about, seed, is_tested=False)
    return rows


def loss_counts(
    references: Lines, lengths: Sequence[int], longest: int, free: Lines, forced: Lines
) -> Floats:
    """Counts of one run's lines, from which all CAUSE_METRICS follow: [lines, 5].

    Of the reference's 6-grams: lost by free search, all; of lines longer than `longest`, the
    trained length: lost with forced lengths; of the beginning: lost with forced lengths, all. Of
    the other lines the last three are -1.
    """
    counts = []
    for reference, length, *outputs in zip(references, lengths, free, forced, strict=True):
        whole, output, forced_output = map(ngrams, (reference, *outputs))
        of_whole = [(whole - output).total(), whole.total()]
        if length <= longest:
            counts.append([*of_whole, -1, -1, -1])
            continue
        letters = "".join(reference.split())
        cut = round(len(letters) * longest / length)
        beginning, _ = distinctive_ngrams([letters[:cut], letters[cut:]])
        of_beginning = [(beginning - forced_output).total(), beginning.total()]
        counts.append([*of_whole, (whole - forced_output).total(), *of_beginning])
    return np.array(counts, np.float64).reshape(-1, 5)


def is_divisible(counts: Floats) -> bool:
    """Whether there are lines both within and beyond the trained length, and text to lose."""
    beyond = _beyond(counts)
    return bool(counts[~beyond, 1].sum() and counts[beyond, 4].sum())


def _beyond(counts: Floats) -> NDArray[np.bool_]:
    return counts[:, 2] >= 0  # see `loss_counts`


def parts_of_run(counts: Floats, samples: int, seed: int) -> list[Floats]:
    """The CAUSE_METRICS of one run, of all lines and of each bootstrap draw: [1 + samples] each."""
    beyond = counts[_beyond(counts)]
    within = _shares(counts[~_beyond(counts), :2], samples, seed)
    columns = (0, 1), (2, 1), (3, 4)  # the same draws of lines, independent of those within
    free, forced, beginning = (_shares(beyond[:, c], samples, seed + 1) for c in columns)
    return [within, free, free - forced, forced - beginning, beginning - within]


def _shares(counts: Floats, samples: int, seed: int) -> Floats:
    """The first column over the second, summed over all lines and over each draw of lines."""
    (drawn,) = resample([counts], samples, seed)
    shares = np.array([ratio(total) for total in (counts.sum(0), *drawn)])
    return np.where(np.isnan(shares), shares[0], shares)  # a draw without any n-gram
