"""Names of devices."""

import pytest
import torch

from nmt.device import pick
from nmt.errors import Exit, UserError


def test_names() -> None:
    assert pick("cpu") == torch.device("cpu")
    assert pick("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["abacus", "mps", "cuda:x", "", "meta"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UserError, match="choose one of") as error:
        pick(name)
    assert error.value.code == Exit.USAGE


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(UserError, match="finds no such GPU") as error:
        pick("cuda:99")
    assert error.value.code == Exit.NO_MEMORY
