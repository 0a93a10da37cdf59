"""Beam search against exhaustive search, a search by plain lists, and greedy search."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.decode.beam import Beam, _top
from nmt.decode.engine import Hypothesis, length_penalty
from nmt.decode.search import Step, search

BOS, EOS = 0, 1
NEVER = float("-inf")


class Table:
    """Log-probabilities for every prefix, and a state that must follow `parents` to find them."""

    def __init__(self, tables: list[Tensor]) -> None:
        self.tables = tables  # per length t: [batch, vocab ** t, vocab]
        self.batch, self.vocab = len(tables[0]), tables[0].shape[-1]
        self.sentence = torch.arange(self.batch)  # [rows]
        self.code = torch.zeros(self.batch, dtype=torch.long)  # [rows] the prefix as a number
        self.seen: list[list[int]] = []  # per call: the sentence of every row

    @classmethod
    def random(cls, seed: int, batch: int, vocab: int, longest: int, levels: int = 0) -> "Table":
        """Normalised, or (levels > 0) few whole numbers, so that many are equal; BOS is never."""
        random = torch.Generator().manual_seed(seed)
        shapes = [(batch, vocab**t, vocab) for t in range(longest + 1)]
        if levels:
            tables = [-torch.randint(levels, s, generator=random).float() for s in shapes]
        else:
            tables = [torch.randn(s, generator=random).mul(2).log_softmax(-1) for s in shapes]
        for table in tables:
            table[..., BOS] = NEVER
        return cls(tables)

    def alone(self, sentence: int) -> "Table":
        return Table([t[sentence : sentence + 1] for t in self.tables])

    def again(self) -> "Table":
        return Table(self.tables)

    def __call__(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        if parents is not None:
            rows = parents.flatten()
            self.sentence, self.code = self.sentence[rows], self.code[rows]
        assert tokens.shape == self.sentence.shape
        if self.seen:
            self.code = self.code * self.vocab + tokens
        else:
            assert tokens.tolist() == [BOS] * self.batch
        table = self.tables[len(self.seen)]
        self.seen.append(self.sentence.tolist())
        return table[self.sentence, self.code]

    def after(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        code = 0
        for token in prefix:
            code = code * self.vocab + token
        return self.tables[len(prefix)][sentence, code].tolist()


class Found(NamedTuple):
    hypotheses: list[Hypothesis]
    steps: int


def nothing(sentence: int, ids: Sequence[int]) -> float:
    return 0.0


def by_lists(
    table: Table,
    sentence: int,
    limit: int,
    beam: int,
    alpha: float,
    coverage: Callable[[int, Sequence[int]], float] = nothing,
    shrinking: bool = False,
) -> Found:
    """The same search, one sentence and one candidate at a time."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    found: list[Hypothesis] = []
    for t in itertools.count():
        candidates = [
            (-(total + log_prob), row, token)
            for row, (prefix, total) in enumerate(live)
            for token, log_prob in enumerate(table.after(sentence, prefix))
            if math.isfinite(log_prob)
        ]
        width = beam - len(found) if shrinking else beam
        best = sorted(candidates)[: width if shrinking else 2 * beam]
        leads = {row: rank for rank, (_, row, _) in reversed(list(enumerate(best)))}
        ended = {
            row: -s
            for rank, (s, row, token) in enumerate(best[:width])
            if token == EOS and (t < limit or leads[row] == rank)
        }
        for row, total in ended.items():
            score = total / length_penalty(t + 1, alpha) + coverage(sentence, live[row][0])
            found.append(Hypothesis(list(live[row][0]), score, total, True))
        if t == limit or not best:
            for row, (prefix, total) in enumerate(live):
                if row not in ended:
                    score = total / length_penalty(t, alpha) + coverage(sentence, prefix)
                    found.append(Hypothesis(list(prefix), score, total, False))
            break
        live = [((*live[row][0], k), -s) for s, row, k in best if k != EOS][:width]
        if not live:
            break
        if shrinking:
            continue
        now = live[0][1] / length_penalty(t + 1, alpha)
        if len(found) >= beam and max(h.score for h in found) >= now:
            break
    return Found(sorted(found, key=lambda h: -h.score)[:beam], t + 1)


def whole(
    step: Step,
    limits: list[int],
    beam: int,
    alpha: float,
    coverage: Callable[[], Tensor] | None = None,
    shrinking: bool = False,
) -> list[list[Hypothesis]]:
    strategy = Beam(
        torch.tensor(limits, dtype=torch.long),
        beam_size=beam,
        length_norm=lambda length: length_penalty(length, alpha),
        eos=EOS,
        coverage_penalty=coverage,
        shrinking=shrinking,
    )
    return [hypotheses[:beam] for hypotheses in search(step, strategy, BOS)]


def test_a_wide_beam_finds_all_sentences_in_the_order_of_their_scores() -> None:
    words, longest, alpha = range(2, 7), 4, 0.6
    table = Table.random(3, batch=2, vocab=7, longest=longest)
    table.tables = [t.double() for t in table.tables]  # so that rounding makes no ties
    found = whole(table, [longest] * 2, 4000, alpha)  # more than there are candidates
    for sentence in range(2):
        expected = []
        for length in range(longest + 1):
            for ids in itertools.product(words, repeat=length):
                after = [table.after(sentence, ids[:t]) for t in range(length + 1)]
                total = sum(after[t][token] for t, token in enumerate(ids))
                ends = length < longest or max(after[-1][EOS:]) == after[-1][EOS]
                total += after[-1][EOS] if ends else 0.0
                penalty = ((5 + length + ends) / 6) ** alpha  # Wu et al. (2016), equation 14
                expected.append((total / penalty, list(ids), total, ends))
        expected.sort(key=lambda e: -e[0])
        assert len(expected) == 781
        assert [h.ids for h in found[sentence]] == [ids for _, ids, _, _ in expected]
        for hypothesis, (score, _, total, ends) in zip(found[sentence], expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(total, abs=1e-5)
            assert hypothesis.finished == ends


@given(
    seed=st.integers(0, 2**31),
    limits=st.lists(st.integers(0, 4), max_size=4),
    beam=st.integers(1, 6),
    levels=st.integers(1, 6),
    never=st.sampled_from([0.0, 0.3]),
    shrinking=st.booleans(),
)
def test_equals_the_search_by_lists_also_among_equal_scores(
    seed: int, limits: list[int], beam: int, levels: int, never: float, shrinking: bool
) -> None:
    """Whole numbers make ties, which break by parent and id; some are impossible, some NaN."""
    table = (
        Table.random(seed, len(limits), 5, 4, levels) if limits else Table([torch.zeros(0, 1, 5)])
    )
    random = torch.Generator().manual_seed(seed)
    for t in table.tables:
        t[torch.rand(t.shape, generator=random) < never] = NEVER
        t[torch.rand(t.shape, generator=random) < never / 4] = math.nan
    found = whole(table, limits, beam, 0.6, shrinking=shrinking)
    expected = [
        by_lists(table, s, limit, beam, 0.6, shrinking=shrinking) for s, limit in enumerate(limits)
    ]
    assert found == [e.hypotheses for e in expected]
    for step, seen in enumerate(table.seen):  # a sentence that is done leaves the batch at once
        assert sorted(set(seen)) == [s for s, e in enumerate(expected) if e.steps > step]
        assert len(seen) <= len(set(seen)) * (1 if step == 0 else beam)
    assert len(table.seen) == max((e.steps for e in expected), default=0)


def test_poor_ends_do_not_stop_a_sure_hypothesis() -> None:
    """Fairseq's rule, beam_size ends and no more, would give [] and [2] here."""

    def sure(tokens: Tensor, parents: Tensor | None) -> Tensor:
        called.append(len(tokens))
        good, end = (-0.1, -8.0) if len(called) <= 3 else (-8.0, -0.1)
        return torch.tensor([[NEVER, end, good, -9.0]]).repeat(len(tokens), 1)

    called: list[int] = []
    (found,) = whole(sure, [9], 2, 0.6)
    assert found[0].ids == [2, 2, 2]
    assert found[0].log_prob == pytest.approx(-0.4)


def test_the_length_penalty_is_that_of_wu_et_al_or_a_power_of_the_length() -> None:
    assert [length_penalty(n, alpha) for n, alpha in ((1, 0.6), (7, 1), (30, 0))] == [1, 2, 1]
    powers = [length_penalty(n, alpha, "power") for n, alpha in ((7, 1), (9, 0.5), (0, 1))]
    assert powers == [7, 3, 1]


@given(
    seed=st.integers(0, 2**32),
    live=st.integers(0, 3),
    size=st.integers(1, 30),
    count=st.integers(1, 8),
    levels=st.sampled_from([1, 2, 5, 10**6]),
)
def test_a_gpu_and_a_cpu_choose_as_a_stable_sort_does(
    seed: int, live: int, size: int, count: int, levels: int
) -> None:
    """Also among equal values, and where some are no numbers."""
    random = torch.Generator().manual_seed(seed)
    scores = -torch.randint(levels, (live, size), generator=random).float()
    for wrong in (NEVER, -NEVER, math.nan):
        if seed % 2:
            scores[torch.rand(scores.shape, generator=random) < 0.3] = wrong
    finite = scores.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)
    values, index = finite.sort(dim=1, descending=True, stable=True)
    count = min(count, size)
    real = values[:, :count] > NEVER
    for may_wait in (True, False):
        found, place = _top(scores.clone(), count, may_wait)
        found = found.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)
        assert torch.equal(found, values[:, :count])
        assert torch.equal(place[real], index[:, :count][real])
