"""Many processes give what one gives, in order, a bounded way ahead."""

import os
from collections.abc import Iterator

import pytest

from nmt.data.parallel import AHEAD, in_order
from nmt.errors import Exit, UserError


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_tasks_are_taken_as_needed(workers: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield -number

    for seen, result in enumerate(in_order(abs, tasks(), workers)):
        assert result == seen
        assert taken <= seen + AHEAD * workers


def test_first_error_in_order_is_raised() -> None:
    with pytest.raises(ValueError, match="'b'"):
        list(in_order(int, ["1", "b", "c"], 2))


def test_killed_process_is_told() -> None:
    with pytest.raises(UserError, match=r"data\.workers: .*set data\.workers below 2") as caught:
        list(in_order(os._exit, [9, 9], 2))
    assert caught.value.code == Exit.NO_MEMORY
