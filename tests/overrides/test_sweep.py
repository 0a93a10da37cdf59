"""Many runs from one command line."""

import pytest

from nmt.errors import UserError
from nmt.overrides.arguments import parse
from nmt.overrides.sweep import Sweep, check_directories, experiments_of, planned


def sweep(*argv: str) -> Sweep:
    plan = planned(parse(["-m", *argv]))
    assert isinstance(plan, Sweep)
    return plan


@pytest.mark.parametrize("key", ["model.norm=pre,post", "encoding.relative.tau=4,8"])
def test_two_runs_in_one_directory_are_refused_before_the_first(key: str) -> None:
    with pytest.raises(UserError, match=r"would share runs/toy/relative-seed1 with another run"):
        check_directories(experiments_of(sweep("encoding=relative", key)))


def test_a_name_may_hold_what_is_swept() -> None:
    runs = experiments_of(sweep("model.norm=pre,post", "seed=1,2", "name=${model.norm}-${seed}"))
    check_directories(runs)
    assert sorted({run.run.name for run in runs}) == ["post-1", "pre-1", "pre-2"]


def test_keys_that_stand_in_the_name_need_none() -> None:
    runs = experiments_of(sweep("encoding=relative,lstm", "seed=1,2"))
    check_directories(runs)
    assert len({run.run for run in runs}) == 3  # each key is varied alone; Hydra makes the product
