"""Attention of a system's first run over a test set: profiles, coverage, what got none."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nmt.compare.attention.statistics import (
    SentenceCoverage,
    attention_statistics,
    profiles,
    unattended,
)
from nmt.compare.report import AttentionProfile, ScoredTest
from nmt.compare.scoring import TranslatedTest, lines_of
from nmt.modeldir import Trained

SAMPLE = 16  # sentences of a bucket whose attention is recorded


def observe(
    trained: Trained,
    scored: ScoredTest,
    test: TranslatedTest,
    system: int,
    columns: Mapping[str, Sequence[str]],
    seed: int,
) -> tuple[ScoredTest, list[AttentionProfile]]:
    """Record the attention over a sample of each bucket and over the examples, all in one pass.

    The sample is drawn by `seed` and the same for every system. `columns` are the integers
    parallel to the sources. Returns the scored test with shares and coverage, and the profiles of
    all heads by bucket.
    """
    sources, lengths = test.sources or [], test.lengths or []
    by_bucket = {
        row.name: sampled(lines_of(row, lengths).tolist(), sources, seed)
        for row in scored.buckets
        if row.pairs
    }
    examples = [example.line - 1 for example in scored.examples]
    lines = sorted({*examples, *(line for sample in by_bucket.values() for line in sample)})
    place = {line: i for i, line in enumerate(lines)}
    statistics = attention_statistics(
        trained,
        [sources[line] for line in lines],
        [test.hypotheses[system][0][line] for line in lines],
        {name: [column[line] for line in lines] for name, column in columns.items()},
        {name: [place[line] for line in sample] for name, sample in by_bucket.items()},
    )
    shares = {
        name: unattended(statistics.sentences[place[line]] for line in sample)
        for name, sample in by_bucket.items()
    }
    scored = with_unattended(scored, system, shares)
    seen = [statistics.sentences[place[line]] for line in examples]
    scored = with_coverage(scored, system, seen)
    return scored, list(profiles(statistics, system, scored.name))


def sampled(
    lines: Sequence[int], sources: Sequence[str], seed: int, most: int = SAMPLE
) -> list[int]:
    """Up to so many of some lines, drawn by a fixed seed, in order; empty ones are left out."""
    filled = [line for line in lines if sources[line].strip()]
    return sorted(random.Random(seed).sample(filled, min(most, len(filled))))


def with_unattended(
    scored: ScoredTest, system: int, shares: Mapping[str, float | None]
) -> ScoredTest:
    """The test with the share of source never attended of one system, by bucket."""
    rows = []
    for row in scored.rows:
        cells = list(row.cells)
        signs = cells[system].signs
        if signs is not None and row.name in shares:
            signs = replace(signs, unattended=shares[row.name])
            cells[system] = replace(cells[system], signs=signs)
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)


def with_coverage(
    scored: ScoredTest, system: int, sentences: Sequence[SentenceCoverage]
) -> ScoredTest:
    """The test with the coverage of one system's translations, in the order of the examples.

    All systems share the source pieces of an example: those of the first that has any. A system
    that cuts a source otherwise has no coverage there.
    """
    examples = []
    for example, seen in zip(scored.examples, sentences, strict=True):
        if example.pieces is None or example.pieces == seen.pieces:
            hypotheses = list(example.hypotheses)
            hypotheses[system] = replace(hypotheses[system], coverage=seen.coverage)
            example = replace(example, pieces=seen.pieces, hypotheses=hypotheses)
        examples.append(example)
    return replace(scored, examples=examples)
