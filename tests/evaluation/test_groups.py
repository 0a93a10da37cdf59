"""Every length belongs to exactly one bucket, and wrong bounds are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import Exit, UserError
from nmt.evaluation.options import parse_bounds
from nmt.evaluation.report import BEYOND
from nmt.evaluation.scoring import choose_lines


def test_the_paper_s_groups() -> None:
    lengths = [0, 1, 25, 26, 50, 51, 75, 76, 100, 101, 999]
    chosen = choose_lines(11, lengths, [25, 50, 75, 100], [50, None, 76])
    assert {group.name: lines.tolist() for group, lines in chosen.items()} == {
        "0-25": [0, 1, 2],
        "26-50": [3, 4],
        "51-75": [5, 6],
        "76-100": [7, 8],
        "over 100": [9, 10],
        BEYOND: [8, 9, 10],  # longer than any in the training of each
        "all": [*range(11)],
    }


@given(st.sets(st.integers(1, 200), min_size=1), st.lists(st.integers(0, 300)))
def test_each_pair_falls_into_one_bucket(bounds: set[int], lengths: list[int]) -> None:
    parsed = parse_bounds(",".join(map(str, sorted(bounds))))
    chosen = choose_lines(len(lengths), lengths, parsed)
    every, _ = chosen.popitem()
    assert sorted(i for lines in chosen.values() for i in lines) == list(range(len(lengths)))
    assert every.pairs == len(lengths) and all(group.pairs for group in chosen)


@pytest.mark.parametrize("text", ["", "a", "25,", "50,25", "25,25", "0,5", "-3", "1.5", "25;50"])
def test_wrong_bounds(text: str) -> None:
    with pytest.raises(UserError, match="--bounds") as caught:
        parse_bounds(text)
    assert caught.value.code == Exit.USAGE
