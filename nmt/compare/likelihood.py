"""How likely models find the references, by source length."""

import math
from collections.abc import Sequence
from dataclasses import replace

from nmt.compare.report import ScoredTest
from nmt.compare.scoring import lines_of
from nmt.decode.forced import GivenTranslation


def with_perplexities(
    scored: ScoredTest,
    lengths: Sequence[int],
    references: Sequence[Sequence[GivenTranslation | None] | None],
) -> ScoredTest:
    """The scored test with perplexities of the references in each bucket.

    exp(-log_prob / pieces), both summed over the lines of the bucket, as training measures it on
    the development text. `references`, as each model scores them, are by system and line: None for
    a system that is no model. Where a line is None, as it is too long for the model, its bucket
    has no perplexity.
    """
    rows = []
    for row in scored.rows:
        lines = lines_of(row, lengths)
        cells = [
            cell
            if by_line is None
            else replace(cell, perplexity=_perplexity([by_line[i] for i in lines]))
            for cell, by_line in zip(row.cells, references, strict=True)
        ]
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)


def _perplexity(lines: Sequence[GivenTranslation | None]) -> float | None:
    known = [line for line in lines if line is not None]
    if not known or len(known) < len(lines):
        return None
    return math.exp(-sum(line.log_prob for line in known) / sum(line.length for line in known))
