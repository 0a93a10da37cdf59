"""Layers that are shared, that tokens leave early, and that have no residual."""

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
import torch
from torch import Tensor

from nmt.model.layers import ComplexFeedForward, EncoderLayer, FeedForward
from nmt.model.length import LengthHead
from nmt.model.stack import Halting, HaltingState, Stack
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def copy_layers(shared: Stack, own: Stack) -> None:
    """Give every layer of a stack the weights of the one shared layer."""
    for layer in own.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    own.norm.load_state_dict(shared.norm.state_dict())


@pytest.mark.parametrize("dropped", ["[]", "[1]", "[2]", "[1,3]"])
def test_shared_layers_equal_as_many_equal_layers(dropped: str, tiny: Make, ids: Ids) -> None:
    """Also where a pass has no residual: passes count, whichever layer they go through."""
    words = ("model.encoder_layers=3", f"model.drop_residual={dropped}")
    shared, own = tiny("model.share_layers=true", *words), tiny(*words)
    assert len(shared.encoder.layers) == 1 and len(own.encoder.layers) == 3
    copy_layers(shared.encoder, own.encoder)
    copy_layers(shared.decoder, own.decoder)
    for name in ("source_embedding", "target_embedding", "output"):
        getattr(own, name).load_state_dict(getattr(shared, name).state_dict())
    source, target = ids(2, 7), ids(2, 5, seed=1)
    assert torch.equal(shared(source, target), own(source, target))


def halted_by_hand(probabilities: list[float], threshold: float) -> tuple[list[float], float]:
    """Graves 2016, eq. 5-8, for one token: the weight of each step, and the ponder time."""
    weights: list[float] = []
    mass = 0.0
    for number, p in enumerate(probabilities):
        if mass + p > threshold or number == len(probabilities) - 1:
            return [*weights, 1 - mass], number + 1 + (1 - mass)
        weights.append(p)
        mass += p
    raise AssertionError


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.99])
def test_halting_is_the_weighted_mean_of_the_states(threshold: float) -> None:
    torch.manual_seed(0)
    halting = Halting(3, threshold)
    x = torch.randn(2, 4, 3)
    state = HaltingState(x)
    states = [x]
    for _ in range(4):
        states.append(states[-1] * 1.5 + 1)  # what a step does to a token that still runs
    y = x
    for number in range(4):
        y = halting(y, y, partial(lambda z: z * 1.5 + 1, y), state, number == 3)
    for row in range(2):
        for token in range(4):
            p = [float(halting.unit(s[row, token]).detach().sigmoid()) for s in states[:4]]
            weights, ponder = halted_by_hand(p, threshold)
            parts = [w * s[row, token] for w, s in zip(weights, states[1:], strict=False)]
            expected = torch.stack(parts).sum(0)
            assert torch.allclose(state.output[row, token], expected, atol=1e-5)
            assert float(state.ponder[row, token].detach()) == pytest.approx(ponder, abs=1e-5)
            assert torch.allclose(y[row, token], states[len(weights)][row, token])  # copied since


def test_streams_of_a_token_halt_together() -> None:
    """Where both say the same, as one row would alone; else by the mean of what they say."""
    torch.manual_seed(0)
    halting = Halting(3, 0.5)
    one, other = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    rows = torch.stack([one, other], 1).flatten(0, 1)  # [sentence x stream, length, dim]
    state = HaltingState(rows, streams=2)
    y = halting(rows, rows, lambda: rows + 1, state, False)
    logits = (halting.unit(one) + halting.unit(other)).squeeze(-1) / 2
    halted = logits.sigmoid() > 0.5
    assert halted.any() and not halted.all()
    assert torch.equal(state.running, ~halted)
    y = halting(y, y, lambda: y + 1, state, True)
    assert torch.equal(y[0::2], torch.where(halted[..., None], one + 1, one + 1 + 1))
    assert torch.equal(y[1::2], torch.where(halted[..., None], other + 1, other + 1 + 1))
    weight = torch.where(halted, 1, logits.sigmoid())[..., None]
    assert torch.allclose(state.output[1::2], weight * (other + 1) + (1 - weight) * (other + 2))


@pytest.mark.parametrize("shared", ["true", "false"])
def test_complex_states_halt_and_learn(shared: str, tiny: Make, ids: Ids) -> None:
    words = ("encoding=complex_order", "model.halting=true", f"model.share_layers={shared}")
    model = tiny(*words, "model.halting_threshold=0.7").train()
    source, target = ids(3, 7), ids(3, 5, seed=1)
    source[0, 4:] = target[1, 3:] = 0
    auxiliary_loss = model.hidden(source, target).auxiliary_loss
    assert auxiliary_loss is not None
    auxiliary_loss.backward()
    for stack in (model.encoder, model.decoder):
        assert stack.halting is not None and stack.halting.unit.weight.grad is not None
        assert stack.halting.unit.weight.grad.abs().sum() > 0


def test_halting_decodes_as_it_was_trained(tiny: Make, ids: Ids) -> None:
    words = ("model.halting=true", "model.share_layers=false", "model.halting_threshold=0.7")
    model = tiny(*words, "model.decoder_layers=4", "encoding=[absolute,relative]")
    source, target = ids(3, 6), ids(3, 9, seed=1)
    full, state = model(source, target), model.start(source)
    steps = [model.step(target[:, t], state) for t in range(9)]
    assert torch.allclose(torch.stack(steps, 1), full, atol=1e-5)


def test_ponder_cost_is_what_the_tokens_took(tiny: Make, ids: Ids) -> None:
    at_once = ("model.halting=true", "model.halting_threshold=0", "model.dropout=0")
    model = tiny(*at_once, "model.ponder_cost=0.5").train()
    auxiliary_loss = model.hidden(ids(2, 7), ids(2, 5, seed=1)).auxiliary_loss
    assert auxiliary_loss is not None
    paid = float(auxiliary_loss.detach())
    assert paid == pytest.approx(0.5 * (2 + 2))  # one step, and all remains
    assert tiny().train().hidden(ids(2, 7), ids(2, 5)).auxiliary_loss is None


@pytest.mark.parametrize("shared", ["true", "false"])
def test_dropping_a_residual_changes_that_pass_alone(shared: str, tiny: Make, ids: Ids) -> None:
    model = tiny("model.drop_residual=[2]", f"model.share_layers={shared}")
    passes: list[tuple[Tensor, Tensor]] = []  # what came in, what came out
    attended: list[Tensor] = []
    for layer in cast(list[EncoderLayer], list(model.encoder.layers)):
        layer.around_attention.register_forward_hook(
            lambda _, given, result: passes.append((given[0], result))
        )
        layer.attention.register_forward_hook(lambda _, given, result: attended.append(result))
    model.encode(ids(2, 7))
    (x, first), (_, second) = passes
    assert torch.equal(first, x + attended[0]) and torch.equal(second, attended[1])


def test_complex_feedforward_is_complex_arithmetic(tiny: Make) -> None:
    model = tiny("encoding=complex_order")
    layer = model.encoder.layers[0].feedforward
    assert isinstance(layer, ComplexFeedForward)
    x = torch.randn(6, 5, 16)

    def times(which: str, z: Tensor) -> Tensor:
        real, imaginary = getattr(layer.real, which), getattr(layer.imaginary, which)
        w = torch.complex(real.weight, imaginary.weight)
        bias = torch.complex(real.bias - imaginary.bias, real.bias + imaginary.bias)
        return z @ w.mT + bias

    h = times("inner", torch.complex(x[0::2], x[1::2]))
    y = times("outer", torch.complex(h.real.relu(), h.imag.relu()))
    expected = torch.stack([y.real, y.imag], 1).flatten(0, 1)
    assert torch.allclose(layer(x), expected, atol=1e-5)
    assert isinstance(tiny().encoder.layers[0].feedforward, FeedForward)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: (x + x.abs()) / 2),
        ("gelu", lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
        ("swish", lambda x: x / (1 + torch.exp(-x))),
    ],
)
def test_activations(name: str, formula: Callable[[Tensor], Tensor], tiny: Make) -> None:
    layer = cast(FeedForward, tiny(f"model.activation={name}").encoder.layers[0].feedforward)
    x = torch.randn(3, 5, 16)
    expected = formula(x @ layer.inner.weight.T + layer.inner.bias) @ layer.outer.weight.T
    assert torch.allclose(layer(x), expected + layer.outer.bias, atol=1e-5)


def test_the_length_head_learns_without_touching_the_encoder() -> None:
    torch.manual_seed(0)
    head = LengthHead(4)
    memory = torch.randn(3, 6, 4, requires_grad=True)
    allowed = torch.ones(3, 1, 1, 6, dtype=torch.bool)
    allowed[0, ..., 4:] = False
    lengths = torch.tensor([8, 12, 12])  # twice the source each
    optim = torch.optim.Adam(head.parameters(), 0.05)
    for _ in range(200):
        optim.zero_grad()
        head.loss(memory, allowed, lengths).backward()
        optim.step()
    assert memory.grad is None
    assert head(memory, allowed).tolist() == [8, 12, 12]
    changed = memory.detach().clone()
    changed[0, 4:] = 100  # padding is not looked at
    assert torch.equal(head(changed, allowed), head(memory, allowed))
