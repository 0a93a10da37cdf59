"""Metrics that count the same translations once, for the tests of a file."""

from collections.abc import Iterator, Sequence

import pytest

from nmt.compare.scores import Counts, Scorer


@pytest.fixture(scope="module")
def each_run_counted_once() -> Iterator[None]:
    """Metrics count the same translations once, of references that are always the same.

    TER takes milliseconds for a line, and most tests ask for other sums of the same counts.
    """
    count, known = Scorer.counts, dict[tuple[str, str, tuple[str, ...]], Counts]()

    def counts(self: Scorer, hypotheses: Sequence[str]) -> Counts:
        key = self.name, self.signature, tuple(hypotheses)
        if key not in known:
            known[key] = count(self, hypotheses)
        return known[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scorer, "counts", counts)
        yield
