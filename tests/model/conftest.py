"""What tests of the model look at: whether attention takes torch's fused kernel."""

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call of the fused kernel."""
    calls: list[int] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def spy(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return fused(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return calls
