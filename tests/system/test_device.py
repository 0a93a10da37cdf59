"""Names of devices, and what is said to torch of a GPU, which needs none to listen."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.errors import Exit, UserError
from nmt.system.device import (
    ALLOCATOR,
    WORKSPACE,
    deterministic_algorithms,
    nondeterministic,
    pick,
    set_up,
)


def test_names() -> None:
    assert pick("cpu") == torch.device("cpu")
    assert pick("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name, code in (("mps", Exit.USAGE), ("cuda:x", Exit.USAGE), ("cuda:99", Exit.UNAVAILABLE)):
        with pytest.raises(UserError) as error:
            pick(name)
        assert error.value.code == code


CUDA = torch.device("cuda", 0)
BACKENDS: Any = torch.backends
PRODUCTS = (BACKENDS.cuda.matmul, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn)
OLDER = (BACKENDS.cuda.matmul, BACKENDS.cudnn)  # with allow_tf32


@pytest.fixture
def settings_of_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All settings are put back."""
    monkeypatch.setenv(ALLOCATOR[0], "none")  # which is then left as it is
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    attention, formats = BACKENDS.cuda.cudnn_sdp_enabled(), [p.fp32_precision for p in PRODUCTS]
    allowed = [older.allow_tf32 for older in OLDER]
    yield
    BACKENDS.cuda.enable_cudnn_sdp(attention)
    for older, allow in zip(OLDER, allowed, strict=True):
        older.allow_tf32 = allow
    for product, kind in zip(PRODUCTS, formats, strict=True):
        product.fp32_precision = kind
    os.environ.pop(WORKSPACE, None)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("settings_of_torch")
def test_tf32_may_be_read_by_all_names_of_torch() -> None:
    """Torch's compiler reads the older ones, which raise where only the newer ones were set."""
    for tf32 in (False, True, False):
        set_up(CUDA, tf32=tf32)
        assert [older.allow_tf32 for older in OLDER] == [tf32] * 2
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert [p.fp32_precision for p in PRODUCTS] == ["tf32" if tf32 else "ieee"] * 3


def test_same_bits_are_asked_of_torch_and_only_meanwhile() -> None:
    memory: Any = torch.utils.deterministic
    with deterministic_algorithms(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(KeyError), deterministic_algorithms(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not memory.fill_uninitialized_memory
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled() and memory.fill_uninitialized_memory


def test_the_operation_without_fixed_bits_is_named() -> None:
    said = "put_ does not have a deterministic implementation, but you set 'torch.use_..."
    assert nondeterministic(RuntimeError(said)) == "put_"
    assert nondeterministic(RuntimeError("CUDA out of memory")) is None
    with deterministic_algorithms(True), pytest.raises(RuntimeError) as error:  # torch's own words
        torch.nn.functional.max_unpool1d(torch.zeros(1, 3), torch.zeros(1, 3).long(), (1,))
    assert nondeterministic(error.value) is not None
