"""What tests of the model look at: whether attention takes torch's fused kernel."""

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each call of the fused kernel."""
    calls: list[dict[str, Any]] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def spy(*arguments: Any, **options: Any) -> Tensor:
        calls.append(options)
        return fused(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return calls
