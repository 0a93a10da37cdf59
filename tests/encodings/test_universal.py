"""The Universal Transformer, against the paper's recurrence in loops and float64.

Dehghani et al. (2019), eq. 4: step l takes H + P_l, P_l = PE(position) + PE(l), to the next H.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.encodings.context import whole
from nmt.encodings.registry import create
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.site import SiteEncodings
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
STEPS = 4


class ByHand:
    """One sentence, one token after the other; nothing of the model but its weights."""

    def __init__(self, model: Transformer) -> None:
        self.w = {name: t.double() for name, t in model.state_dict().items()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean()
        scaled = centred / (centred.square().mean() + 1e-5).sqrt()
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attention(self, name: str, x: Tensor, keys: list[Tensor]) -> Tensor:
        """One query [dim] over the keys' states."""
        q = self.linear(f"{name}.query", x).view(2, -1)
        k = torch.stack([self.linear(f"{name}.key", y).view(2, -1) for y in keys])
        v = torch.stack([self.linear(f"{name}.value", y).view(2, -1) for y in keys])
        heads = []
        for h in range(2):
            p = (k[:, h] @ q[h] / q.shape[1] ** 0.5).softmax(0)
            heads.append(p @ v[:, h])
        return self.linear(f"{name}.out", torch.cat(heads))

    def step(self, layer: str, states: list[Tensor], memory: list[Tensor] | None) -> list[Tensor]:
        """The layer over all tokens; a decoder, which has a memory, looks back only."""
        normed = [self.norm(f"{layer}.around_attention.norm", x) for x in states]
        after = []
        for i, x in enumerate(states):
            seen = normed if memory is None else normed[: i + 1]
            x = x + self.attention(f"{layer}.attention", normed[i], seen)
            if memory is not None:
                y = self.norm(f"{layer}.around_cross.norm", x)
                x = x + self.attention(f"{layer}.cross", y, memory)
            y = self.norm(f"{layer}.around_feedforward.norm", x)
            y = self.linear(f"{layer}.feedforward.inner", y).relu()
            after.append(x + self.linear(f"{layer}.feedforward.outer", y))
        return after

    def stack(self, name: str, ids: Tensor, table: str, memory: list[Tensor] | None) -> Tensor:
        """The states [length, dim] at the top."""
        n, dim = len(ids), self.w[table].shape[1]
        states = list(self.w[table][ids] * dim**0.5)
        places, times = sinusoids(torch.arange(n), dim), sinusoids(torch.arange(STEPS + 1), dim)
        for number in range(1, STEPS + 1):
            given = [x + places[t] + times[number] for t, x in enumerate(states)]
            states = self.step(f"{name}.layers.0", given, memory)
        return torch.stack([self.norm(f"{name}.norm", x) for x in states])

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """[target, vocab]."""
        memory = list(self.stack("encoder", source, "source_embedding.weight", None))
        x = self.stack("decoder", target, "target_embedding.weight", memory)
        return self.linear("output", x)


@pytest.mark.parametrize("cached", [False, True])
@torch.inference_mode()
def test_one_layer_is_gone_through_again_and_again(cached: bool, tiny: Make, ids: Ids) -> None:
    steps = (f"model.{side}_layers={STEPS}" for side in ("encoder", "decoder"))
    model = tiny("encoding=universal", *steps)
    source, target = ids(1, 6), ids(1, 7, seed=1)
    wanted = ByHand(model).logits(source[0], target[0])
    if cached:
        state = model.start(source)
        got = torch.stack([model.step(target[:, t], state) for t in range(7)], 1)[0]
    else:
        got = model(source, target)[0]
    assert float((got - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())


def test_a_step_has_its_number_in_the_stack_where_not_all_are_served() -> None:
    every, last = (
        SiteEncodings(create({"universal": options}, dims(layers=3)))
        for options in ({}, {"layers": [2]})
    )
    x, context = torch.zeros(1, 5, 8), whole("encoder", 5)
    assert torch.equal(last.layer_input(x, 2, context), every.layer_input(x, 2, context))
    assert not last.layer_input(x, 0, context).any()
