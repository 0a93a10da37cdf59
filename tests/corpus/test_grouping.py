"""Grouping by length: everything once, within the budget, longest first."""

from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.grouping import by_length


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200))
def test_every_place_once_within_the_budget_and_no_group_smaller_than_need_be(
    lengths: list[int], budget: int
) -> None:
    groups = by_length(lengths, budget)
    flat = [place for group in groups for place in group]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[p] for p in flat] == sorted(lengths, reverse=True)
    for group in groups:
        assert len(group) == 1 or len(group) * lengths[group[0]] <= budget
    for group in groups[:-1]:
        assert (len(group) + 1) * lengths[group[0]] > budget
