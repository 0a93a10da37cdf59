"""Which runs a command line means."""

import pytest

from nmt.config.catalog import options_of
from nmt.config.hydra_conf import Sweep, lines_of, parse, sweep_of
from nmt.errors import UserError


def sweep(*argv: str) -> Sweep:
    parsed = sweep_of(parse(argv), multirun=True)
    assert parsed is not None
    return parsed


def jobs(*argv: str) -> list[list[str]]:
    """The overrides of each run, but for the one that says that it is a single run."""
    listed = [[str(o.input_line) for o in job] for job in sweep(*argv).jobs]
    return [[line for line in job if line != "hydra.mode=RUN"] for job in listed]


def test_a_sweep_is_the_product_of_its_values_in_their_order() -> None:
    assert jobs("encoding=none,[gru,relative]", "seed=range(1,3)", "model=tiny") == [
        ["encoding=none", "seed=1", "model=tiny"],
        ["encoding=none", "seed=2", "model=tiny"],
        ["encoding=[gru,relative]", "seed=1", "model=tiny"],
        ["encoding=[gru,relative]", "seed=2", "model=tiny"],
    ]
    assert jobs("seed=choice(3,1)") == [["seed=3"], ["seed=1"]]
    assert jobs("hydra.mode=MULTIRUN", "seed=1,2")[1] == ["seed=2"]


def test_each_run_says_that_it_is_one() -> None:
    assert all("hydra.mode=RUN" in lines_of(job) for job in sweep("seed=1,2").jobs)


def test_a_glob_means_the_options_that_there_are() -> None:
    names = [words[0].partition("=")[2] for words in jobs("encoding=glob(*)")]
    assert names == options_of("encoding")
    assert jobs("encoding=glob(rot*,exclude=*partial)") == [["encoding=rotary"]]
    assert sweep("encoding=glob(*)").globbed and not sweep("encoding=absolute,none").globbed
    with pytest.raises(UserError, match=r"encoding=glob\(zzz\*\): there is no such option"):
        sweep("encoding=glob(zzz*)")


def test_an_interval_has_no_values() -> None:
    with pytest.raises(UserError, match=r"optim.lr=interval\(0,1\): name each value"):
        sweep("optim.lr=interval(0,1)")


def test_one_run_is_no_sweep() -> None:
    for words in ([], ["encoding=relative"], ["experiment=compare"]):
        assert sweep_of(parse(words)) is None
