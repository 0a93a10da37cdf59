"""The plateau's sixth checkpoint, and the inverse square root's peak."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from nmt.training.schedule import InverseSqrtDecay, PlateauDecay


def plateau(patience: int = 6, min_lr: float = 0.0) -> PlateauDecay:
    return PlateauDecay(lr=1.0, decay=0.5, patience=patience, min_lr=min_lr)


def rates(perplexities: list[float], patience: int = 6, min_lr: float = 0.0) -> list[float]:
    schedule, found = plateau(patience, min_lr), []
    for each in perplexities:
        schedule.observe([each])
        found.append(schedule.rate(1))
    return found


def test_the_sixth_stall_in_a_row_cuts_and_the_count_starts_anew() -> None:
    assert rates([9.0] + [9.0] * 5) == [1.0] * 6
    assert rates([9.0] + [9.0] * 6)[-1] == 0.5
    assert rates([9.0] + [9.0] * 11)[-1] == 0.5
    assert rates([9.0] + [9.0] * 12)[-1] == 0.25


def test_a_gain_however_small_is_a_gain_and_best_survives_a_cut() -> None:
    assert rates([9.0 - 1e-9 * i for i in range(20)]) == [1.0] * 20
    assert rates([9.0, *[9.5] * 5, 9.0 - 1e-12, *[9.5] * 5])[-1] == 1.0
    # after the cut 9.2 is still worse than the 9.0 of long ago
    assert rates([9.0, *[9.5] * 6, *[9.2] * 6])[-1] == 0.25


def test_the_rate_stops_at_its_floor() -> None:
    assert rates([9.0] * 9, patience=1, min_lr=0.2) == [1.0, 0.5, 0.25, *[0.2] * 6]


@given(st.lists(st.floats(1, 20), max_size=40), st.integers(0, 40), st.integers(1, 4))
def test_through_json_at_any_moment(values: list[float], at: int, patience: int) -> None:
    schedule, found = plateau(patience), []
    for number, value in enumerate(values):
        if number == at:
            text = json.dumps(vars(schedule), allow_nan=False)
            schedule = plateau(patience)
            vars(schedule).update(json.loads(text))
        schedule.observe([value])
        found.append(schedule.rate(number))
    assert found == rates(values, patience)


def test_inverse_square_root() -> None:
    schedule = InverseSqrtDecay(peak=512**-0.5 * 4000**-0.5, warmup=4000)
    for step in (1, 17, 3999, 4000, 4001, 100_000):  # the formula as the paper prints it
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert math.isclose(schedule.rate(step), paper, rel_tol=1e-12)
    assert max(range(1, 9000), key=schedule.rate) == 4000
    schedule.observe([1.0])
    assert schedule.rate(4000) == 512**-0.5 * 4000**-0.5
