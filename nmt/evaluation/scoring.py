"""A translated test set, scored: all metrics on all groups of its lines. No model is needed."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation.lost import PART_METRICS, counts_of_part, lost_text, parts_of_lines
from nmt.evaluation.metrics import (
    MODEL_METRICS,
    REPETITION,
    UNATTENDED,
    Floats,
    Metric,
    References,
    make_metrics,
    names_of_metrics,
    ratio,
    repeats,
)
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import ALL, BEYOND, REFERENCES, Figure, Group, TranslatedTest
from nmt.evaluation.significance import Counts, count_runs, score_group

SENTENCE = "chrF2"  # scores single sentences: BLEU and TER say little of so few words
DIFFERENT, WORST = 20, 10  # examples shown

ChosenLines = dict[Group, NDArray[np.intp]]
"""The indices of the lines of each group in the test set."""


def choose_metrics(test: TranslatedTest, options: EvaluationOptions) -> list[Metric]:
    """The metrics that are chosen, or else the default ones; raises what `make_metrics` does."""
    names = options.metrics or names_of_metrics(test.language, default=True)
    about = test.language, options.tokenize, options.samples, options.seed
    return make_metrics(names, References(test.references, *about))


def score_test(
    test: TranslatedTest,
    labels: Sequence[str],
    options: EvaluationOptions,
    extra: Sequence[Sequence[Counts]] = (),
) -> list[Figure]:
    """Score all systems by the test's metrics on each group of lines; the first is the baseline.

    A group's score is the corpus score of its pairs, no mean over sentences. `extra` has counts
    [lines, 2] that do not come from the texts, by system and run. The test gets its groups and
    examples, and all metrics that have a figure.
    """
    metrics = [*test.metrics, lost_text(test.references)]
    counted = [*metrics, *([parts_of_lines(test.parts)] if test.parts else [])]
    sentence = None
    if test.sources is not None and test.lengths is not None:
        listed = [metric for metric in metrics if metric.name == SENTENCE]
        (sentence, *_) = listed or make_metrics([SENTENCE], References(test.references))
        counted.append(sentence)
    counts = count_runs(counted, test.hypotheses)
    names = dict.fromkeys(name for runs in extra for run in runs for name in run)
    for name in sorted(names, key=list(MODEL_METRICS).__contains__):  # --scores come first
        metrics.append(MODEL_METRICS.get(name) or Metric(name, "read from a file", "mean"))
    for runs, extra_runs in zip(counts, extra, strict=False):
        for run, extra_counts in zip(runs, extra_runs, strict=True):
            run.update(extra_counts)
    chosen = choose_lines(len(test.references), test.lengths, options.bounds, test.trained)
    figures, repeated = list[Figure](), repeats(test.references)
    bootstrap = options.samples, options.seed
    for group, lines in chosen.items():
        on_axis = group.low is not None  # attention is of a sample of each bucket
        scored = [m for m in metrics if on_axis or m.name != UNATTENDED]
        figures += score_group(scored, counts, lines, _about(test, labels, group), *bootstrap)
        share = ratio(repeated[lines].sum(0))
        if not math.isnan(share):
            row = test.name, group.name, group.pairs, REFERENCES, REPETITION.name
            figures.append(Figure(*row, share))
    test.groups = list(chosen)
    for number, group, lines in _list_parts(test):
        test.groups.append(group)
        of_part = [[counts_of_part(number, run) for run in runs] for runs in counts]
        about = _about(test, labels, group)
        figures += score_group(PART_METRICS, of_part, lines, about, *bootstrap)
    scored_names = {figure.metric for figure in figures}
    test.metrics = [m for m in (*metrics, *PART_METRICS) if m.name in scored_names]
    if sentence:
        scores = [[sentence.value(row) for row in runs[0][SENTENCE]] for runs in counts]
        buckets = [lines.tolist() for group, lines in chosen.items() if group.low is not None]
        test.examples = choose_examples(test, np.array(scores), buckets)
    return figures


def choose_lines(
    pairs: int,
    lengths: Sequence[int] | None,
    bounds: Sequence[int],
    trained: Sequence[int | None] = (),
) -> ChosenLines:
    """The filled buckets by source length, the lines that are longer than any in training, and all.

    As in Rosendahl et al. (2019), n bounds make n + 1 buckets; length 0 counts into the first.
    Beyond training are lines longer than the longest of each system whose training is known.
    """
    chosen: ChosenLines = {}
    if lengths is not None and bounds:
        array = np.asarray(lengths, dtype=np.int64)
        for low, high in zip([0, *(end + 1 for end in bounds)], [*bounds, None], strict=True):
            name = f"over {low - 1}" if high is None else f"{low}-{high}"
            lines = np.flatnonzero((array >= low) & (high is None or array <= high))
            chosen[Group(name, len(lines), low, high)] = lines
        longest = max((limit for limit in trained if limit is not None), default=None)
        if longest is not None:
            lines = np.flatnonzero(array > longest)
            chosen[Group(BEYOND, len(lines))] = lines
    chosen = {group: lines for group, lines in chosen.items() if group.pairs}
    return chosen | {Group(ALL, pairs): np.arange(pairs)}


def _about(test: TranslatedTest, labels: Sequence[str], group: Group) -> list[dict[str, object]]:
    """What the rows of a group say besides numbers, by system."""
    of_group = {"test": test.name, "group": group.name, "pairs": group.pairs}
    return [
        {**of_group, "system": label, "unseen": group.is_unseen(longest)}
        for label, longest in zip(labels, test.trained, strict=True)
    ]


def _list_parts(test: TranslatedTest) -> Iterator[tuple[int, Group, NDArray[np.intp]]]:
    """The parts of joined lines, by how many are joined: number of the part, group, lines."""
    sizes = np.array([len(references) for references in test.parts or ()])
    for size in sorted(set(sizes.tolist()) - {0, 1}):
        lines = np.flatnonzero(sizes == size)
        for number in range(size):
            yield number, Group(f"{number + 1} of {size}", len(lines)), lines


def choose_examples(
    test: TranslatedTest, scores: Floats, buckets: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """The lines whose translations differ most, then the worst, by sentence scores [system, line].

    They come from each bucket by turns, with the translations of each system's first run.
    """
    sources, lengths = test.sources or [], test.lengths or []
    spread, mean = np.ptp(scores, axis=0), scores.mean(axis=0)
    groups = [
        [int(i) for i in lines if sources[i].strip() and test.references[i].strip()]
        for lines in buckets
    ]
    differing = [[i for i in lines if spread[i] > 0] for lines in groups]
    different = round_robin(differing, (-spread).tolist(), DIFFERENT)
    remaining = [[i for i in lines if i not in different] for lines in groups]
    worst = round_robin(remaining, mean.tolist(), WORST)
    return [
        {
            "line": i + 1,
            "why": why,
            "length": lengths[i],
            "source": sources[i],
            "reference": test.references[i],
            "translations": [runs[0][i] for runs in test.hypotheses],
            "scores": scores[:, i].tolist(),
        }
        for why, chosen in (("most different", different), ("worst", worst))
        for i in chosen
    ]


def round_robin(groups: Sequence[Sequence[int]], keys: Sequence[float], most: int) -> list[int]:
    """Up to `most` lines of smallest key, by turns from each group; sorted by key.

    Otherwise a long test set would show only its longest (or shortest) sentences.
    """
    ordered = [sorted(lines, key=lambda i: (keys[i], i)) for lines in groups]
    turns = (line for turn in zip_longest(*ordered) for line in turn if line is not None)
    return sorted(islice(turns, most), key=lambda i: (keys[i], i))
