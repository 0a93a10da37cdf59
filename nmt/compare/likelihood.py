"""How likely models find the references, by source length."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nmt.compare.report import ScoredTest
from nmt.compare.scoring import lines_of


class Likelihood(NamedTuple):
    """How likely a model finds the reference of one line, given its source."""

    log_prob: float  # natural logarithm, the end of the sentence included
    pieces: int  # as many as the model segments it into, its end included


def with_perplexities(
    scored: ScoredTest,
    lengths: Sequence[int],
    likelihoods: Sequence[Sequence[Likelihood | None] | None],
) -> ScoredTest:
    """The scored test with perplexities of the references in each bucket.

    exp(-log_prob / pieces), both summed over the lines of the bucket, as training measures it on
    the development text. Likelihoods are by system and line: None for a system that is no model.
    Where a line has none, as it is too long for the model, its bucket has no perplexity.
    """
    rows = []
    for row in scored.rows:
        lines = lines_of(row, lengths)
        cells = [
            cell
            if by_line is None
            else replace(cell, perplexity=_perplexity([by_line[i] for i in lines]))
            for cell, by_line in zip(row.cells, likelihoods, strict=True)
        ]
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)


def _perplexity(some: Sequence[Likelihood | None]) -> float | None:
    known = [likelihood for likelihood in some if likelihood is not None]
    if not known or len(known) < len(some):
        return None
    return math.exp(
        -sum(likelihood.log_prob for likelihood in known)
        / sum(likelihood.pieces for likelihood in known)
    )
