"""Where a mask is causal and nothing else, the fused kernel of torch is told so, and no mask."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.model import layers
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


@pytest.mark.parametrize("option, told", [("absolute", True), ("t5", False), ("rotary", True)])
def test_a_causal_pass_without_a_bias_hands_no_mask_over(
    option: str,
    told: bool,
    tiny: Make,
    ids: Ids,
    monkeypatch: pytest.MonkeyPatch,
    kernel_calls: list[dict[str, Any]],
) -> None:
    monkeypatch.setattr(layers, "FUSED_FROM", 1)
    model, source, target = tiny(f"encoding={option}"), ids(3, 9), ids(3, 7, seed=1)
    source[0, 5:] = 0
    found = model(source, target)
    seen = [(call["is_causal"], call["attn_mask"] is None) for call in kernel_calls]
    assert len(seen) == 6 and set(seen) == {(False, False), (told, told)}
    monkeypatch.setattr(layers, "FUSED_FROM", 1000)
    kernel_calls.clear()
    torch.testing.assert_close(found, model(source, target))
    assert not kernel_calls
