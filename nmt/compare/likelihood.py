"""How likely models find the references, by source length."""

import math
from collections.abc import Sequence
from dataclasses import replace

from nmt.compare.report import ScoredTest
from nmt.compare.scoring import lines_of, mean_of_known
from nmt.decode.forced import GivenTranslation


def with_perplexities(
    scored: ScoredTest,
    lengths: Sequence[int],
    references: Sequence[Sequence[Sequence[GivenTranslation | None]]],
) -> ScoredTest:
    """The scored test with perplexities of the references in each bucket.

    exp(-log_prob / pieces), both summed over the lines of the bucket, as training measures it on
    the development text; the mean over runs. `references`, as each model scores them, are by
    system, run and line. Where a line is None, as it is too long for the model, its bucket has no
    perplexity.
    """
    rows = []
    for row in scored.rows:
        lines = lines_of(row, lengths)
        cells = [
            replace(
                cell,
                perplexity=mean_of_known(_perplexity([run[i] for i in lines]) for run in runs),
            )
            for cell, runs in zip(row.cells, references, strict=True)
        ]
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)


def _perplexity(lines: Sequence[GivenTranslation | None]) -> float | None:
    known = [line for line in lines if line is not None]
    if not known or len(known) < len(lines):
        return None
    return math.exp(-sum(line.log_prob for line in known) / sum(line.length for line in known))
