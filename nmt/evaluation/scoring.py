"""A translated test set, scored: all metrics on all groups of its lines. No model is needed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nmt.evaluation.estimates import Counts, count_runs, score_group
from nmt.evaluation.examples import SENTENCE, choose_examples
from nmt.evaluation.groups import ChosenLines, choose_lines, is_unseen
from nmt.evaluation.lost import Parts, lost_text, place_scorers
from nmt.evaluation.metrics import (
    DEFAULTS,
    GIVEN,
    REPETITION,
    UNATTENDED,
    Scorer,
    of_given,
    of_language,
    ratio,
    scorers,
)
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import (
    REFERENCES,
    SOURCE,
    ComparedLine,
    Figure,
    Group,
    Metric,
    ScoredTest,
)
from nmt.evaluation.significance import Floats

Given = Mapping[str, Mapping[int, Sequence[Floats]]]
"""Counts [lines, 2] of figures that the texts do not give: by name, system and run."""


class TranslatedTest(NamedTuple):
    """One test set with the translations of all systems; line N of everything belongs together."""

    references: list[str]
    hypotheses: list[list[list[str]]]  # system, run -> lines
    name: str = "test"
    about: str = ""  # a sentence on what it is
    language: str = "en"  # of the references
    sources: list[str] | None = None
    lengths: list[int] | None = None  # of the sources, or references; None: no buckets
    unit: str | None = None  # what a length counts
    side: str = SOURCE  # whose lengths they are, or REFERENCE
    trained: Sequence[int | None] = ()  # longest in training, by system, in this unit
    parts: Parts | None = None  # the reference sentences of each joined line; None: not joined


def scorers_of(test: TranslatedTest, options: EvaluationOptions) -> list[Scorer]:
    """The metrics of a test that are asked for; raises UserError as `scorers` does."""
    names = dict.fromkeys(options.metrics or of_language(DEFAULTS, test.language))
    bootstrap = options.samples, options.seed
    return scorers(names, test.references, test.language, options.tokenize, *bootstrap)


def score_test(
    test: TranslatedTest, labels: Sequence[str], options: EvaluationOptions, given: Given
) -> tuple[ScoredTest, list[Figure]]:
    """Score all systems on each group of lines; the first is the baseline of the paired tests.

    A group's score is the corpus score of its pairs, no mean over sentences. Raises UserError as
    `scorers` does.
    """
    used = [*scorers_of(test, options), lost_text(test.references)]
    sentence = next((s for s in used if s.metric.name == SENTENCE), None)
    if sentence is None and test.sources is not None:
        sentence = scorers([SENTENCE], test.references, test.language)[0]
    places = place_scorers(test.parts) if test.parts else []
    extra = [sentence] if sentence else []
    counts = count_runs([*used, *extra, *(s for of in places for s in of)], test.hypotheses)
    for name, systems in given.items():
        used.append(GIVEN.get(name) or of_given(Metric(name, "given for each line", "mean")))
        for s, runs in systems.items():
            for known, values in zip(counts[s], runs, strict=False):  # attention: of the first run
                known[name] = values
    chosen = choose_lines(len(test.references), test.lengths, options.bounds, test.trained)
    figures = list[Figure]()
    for group, lines in chosen:
        on_axis = group.low is not None  # attention is of a sample of each bucket
        scored = [s for s in used if on_axis or s.metric.name != UNATTENDED]
        figures += _score(test, labels, scored, counts, ChosenLines(group, lines), options)
    groups = [group for group, _ in chosen]
    for scored, of_place in _places(test, places):
        groups.append(of_place.group)
        figures += _score(test, labels, scored, counts, of_place, options)
    figures += _of_references(test, chosen)
    known_metrics = {figure.metric for figure in figures}
    metrics = [s.metric for s in [*used, *(places[0] if places else ())]]
    examples = []
    if sentence is not None and test.sources is not None and test.lengths is not None:
        columns = [[sentence.value(row) for row in runs[0][SENTENCE]] for runs in counts]
        buckets = [bucket for bucket in chosen if bucket.group.low is not None]
        firsts = [runs[0] for runs in test.hypotheses]
        texts = test.sources, test.references, firsts
        examples = choose_examples(*texts, np.array(columns), buckets, test.lengths)
    scored_test = ScoredTest(
        name=test.name,
        about=test.about,
        metrics=[metric for metric in metrics if metric.name in known_metrics],
        groups=groups,
        unit=test.unit,
        side=test.side,
        longest=max(test.lengths or (), default=None),
        trained=list(test.trained),
        examples=examples,
        lines=list(_lines(test)),
    )
    return scored_test, figures


def _score(
    test: TranslatedTest,
    labels: Sequence[str],
    used: Sequence[Scorer],
    counts: Sequence[Sequence[Counts]],
    chosen: ChosenLines,
    options: EvaluationOptions,
) -> list[Figure]:
    group = chosen.group
    trained = test.trained or [None] * len(labels)
    about = [
        {
            "test": test.name,
            "group": group.name,
            "pairs": group.pairs,
            "system": label,
            "unseen": is_unseen(group, trained[s]),
        }
        for s, label in enumerate(labels)
    ]
    return score_group(used, counts, chosen.lines, about, options.samples, options.seed)


def _places(
    test: TranslatedTest, scored: Sequence[list[Scorer]]
) -> Iterator[tuple[list[Scorer], ChosenLines]]:
    """The part at one place of the lines that are joined of so many, with its metrics."""
    sizes = np.array([len(references) for references in test.parts or ()])
    for size in sorted(set(sizes.tolist()) - {0, 1}):
        lines = np.flatnonzero(sizes == size)
        for place in range(size):
            group = Group(f"{place + 1} of {size}", len(lines))
            yield scored[place], ChosenLines(group, lines)


def _of_references(test: TranslatedTest, chosen: Sequence[ChosenLines]) -> Iterator[Figure]:
    """How repetitive the references themselves are."""
    counts = REPETITION.counts(test.references)
    for group, lines in chosen:
        if counts[lines, 1].sum():
            share, name = ratio(counts[lines].sum(0)), REPETITION.metric.name
            yield Figure(test.name, group.name, group.pairs, REFERENCES, name, share)


def _lines(test: TranslatedTest) -> Iterator[ComparedLine]:
    for i, reference in enumerate(test.references):
        source = None if test.sources is None else test.sources[i]
        yield ComparedLine(
            source, reference, [[run[i] for run in runs] for runs in test.hypotheses]
        )
