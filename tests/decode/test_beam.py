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

from nmt.decode.beam import Beam, _continue, _top
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
        penalty=lambda length: length_penalty(length, alpha),
        eos=EOS,
        coverage_penalty=coverage,
        shrinking=shrinking,
    )
    return [hypotheses[:beam] for hypotheses in search(step, strategy, BOS)]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_beam_finds_all_sentences_in_the_order_of_their_scores(alpha: float) -> None:
    words, longest = range(2, 7), 4
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


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("seed", range(5))
def test_beam_1_is_greedy(seed: int, levels: int) -> None:
    table = Table.random(seed, 6, 5, 5, levels)
    for sentence, (found,) in enumerate(whole(table, [5] * 6, 1, 0.6)):
        ids: list[int] = []
        total = torch.zeros(())
        while EOS not in ids and len(ids) <= 5:
            log_probs = torch.tensor(table.after(sentence, tuple(ids)))
            total = total + log_probs.max()
            ids.append(int(log_probs.argmax()))
        finished = ids[-1] == EOS
        assert found.ids == ids[:-1]
        assert found.finished == finished
        if finished:
            assert found.log_prob == float(total)


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


def test_the_best_of_a_narrow_beam_are_different() -> None:
    for some in whole(Table.random(5, 3, 6, 5), [5] * 3, 4, 0.6):
        assert len({tuple(h.ids) for h in some}) == len(some) == 4


def test_an_output_that_never_ends_is_cut_at_its_limit_and_flagged() -> None:
    def endless(tokens: Tensor, parents: Tensor | None) -> Tensor:
        return torch.tensor([[NEVER, -9.0, -1.0, -2.0]]).repeat(len(tokens), 1)

    first, second = whole(endless, [3, 1], 2, 0.6)
    assert first[0] == Hypothesis([2, 2, 2], -3 / length_penalty(3, 0.6), -3.0, False)
    assert second == [Hypothesis([2], -1.0, -1.0, False), Hypothesis([3], -2.0, -2.0, False)]


@pytest.mark.parametrize("value", [math.nan, NEVER, math.inf])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_no_numbers_end_the_output_where_it_is(value: float, beam: int) -> None:
    table = Table.random(1, 2, 5, 4)
    for t in table.tables:
        t[0, :, EOS] = -50.0  # the first sentence would go on to its limit
    table.tables[2][0] = value
    first, second = whole(table, [4, 4], beam, 0.6)
    assert [len(h.ids) for h in first] == [2] * beam
    assert not any(h.finished for h in first)
    assert [second] == whole(table.alone(1), [4], beam, 0.6)


def test_nothing_but_eos_and_not_even_eos() -> None:
    only = Table([torch.tensor([[[NEVER, -1.0, NEVER]]])])
    assert whole(only, [5], 3, 0.0) == [[Hypothesis([], -1.0, -1.0, True)]]
    nothing = Table([torch.full((1, 1, 3), NEVER)])
    assert whole(nothing, [5], 3, 0.0) == [[Hypothesis([], 0.0, 0.0, False)]]


def test_the_length_penalty_is_that_of_wu_et_al() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(30, 0.0) == 1.0


def test_the_length_penalty_of_other_engines_is_a_power_of_the_length() -> None:
    assert length_penalty(7, 1.0, "power") == 7.0
    assert length_penalty(9, 0.5, "power") == 3.0
    assert length_penalty(0, 1.0, "power") == 1.0


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 5), st.integers(1, 30))
def test_the_best_continuations_are_those_of_all_sums(
    seed: int, live: int, width: int, vocab: int
) -> None:
    """Also where log-probabilities differ and sums do not, and where some are no numbers."""
    random = torch.Generator().manual_seed(seed)
    size = 10.0 ** int(torch.randint(-7, 2, (1,), generator=random))
    log_probs = torch.randn(live * width, vocab, generator=random) * size
    log_probs = log_probs.round() if seed % 3 == 0 else log_probs
    for wrong in (NEVER, -NEVER, float("nan")):
        if seed % 5 == 1:
            log_probs[torch.rand(log_probs.shape, generator=random) < 0.2] = wrong
    total = -100 * torch.rand(live, width, generator=random)
    count = 2 * (1 + seed % 4)
    sums = total[:, :, None] + log_probs.view(live, width, vocab)
    sums = sums.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER).flatten(1)
    expected, index = sums.sort(dim=1, descending=True, stable=True)
    scores, parent, token = _continue(log_probs, total, count)
    assert torch.equal(scores, expected[:, :count])
    real = scores > NEVER
    assert torch.equal((parent * vocab + token)[real], index[:, :count][real])


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
