"""Every length belongs to exactly one bucket, and wrong bounds are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.compare import buckets
from nmt.errors import Exit, UserError


def test_the_paper_s_groups() -> None:
    made = buckets.from_bounds([25, 50, 75, 100])
    assert [b.name for b in made] == ["0-25", "26-50", "51-75", "76-100", "over 100"]
    lengths = [0, 1, 25, 26, 50, 51, 75, 76, 100, 101, 999]
    assert [list(buckets.indices(b, lengths)) for b in made] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
        [9, 10],
    ]


@given(st.sets(st.integers(1, 200), min_size=1), st.lists(st.integers(0, 300)))
def test_each_pair_falls_into_one_bucket(bounds: set[int], lengths: list[int]) -> None:
    made = buckets.from_bounds(buckets.parse_bounds(",".join(map(str, sorted(bounds)))))
    found = np.concatenate([buckets.indices(b, lengths) for b in made])
    assert sorted(found) == list(range(len(lengths)))


@pytest.mark.parametrize("text", ["", "a", "25,", "50,25", "25,25", "0,5", "-3", "1.5", "25;50"])
def test_wrong_bounds(text: str) -> None:
    with pytest.raises(UserError, match="--bounds") as caught:
        buckets.parse_bounds(text)
    assert caught.value.code == Exit.USAGE
