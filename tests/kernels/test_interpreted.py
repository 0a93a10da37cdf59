"""Kernels against the plain formulas, in Triton's interpreter."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

pytest.importorskip("triton", reason="triton is not installed; it comes with torch for GPUs")
if torch.cuda.is_available():  # where exact float32, which these tests need, compiles for minutes
    pytest.skip("on a GPU: python -m scripts.kernels compare", allow_module_level=True)

from nmt.kernels import choice, selftest
from nmt.kernels.relative import attention
from nmt.training import crossentropy, loss
from scripts.kernels import grid, where
from scripts.kernels.grid import Shape, Tokens

DEVICE = where.device()


def check(case: Shape | Tokens, found: grid.Differences) -> None:
    bound = grid.BOUNDS[torch.bfloat16 if case.low else torch.float32]
    assert max(found.values()) < bound, f"{case}: {found}"


def test_one_shape_with_all_there_is() -> None:
    shape = Shape(33, 33, 2, 16, "both", causal=True, padding=True, rate=0.3)
    check(shape, grid.compare(shape, DEVICE))


def test_one_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tokens at a time, whose logits take the place of gradients, padding included."""
    monkeypatch.setattr(crossentropy, "FEWEST", 64)
    monkeypatch.setattr(crossentropy, "LOGITS", {"cpu": 1})
    case = Tokens(70, 70, 0.1, True)
    check(case, grid.compare_loss(case, DEVICE))


@pytest.mark.slow
@pytest.mark.parametrize("shape", grid.some(200), ids=str)
def test_attention_equals_the_formulas(shape: Shape) -> None:
    check(shape, grid.compare(shape, DEVICE))


@pytest.mark.slow
@pytest.mark.parametrize("case", list(grid.losses()), ids=str)
def test_loss_equals_the_formulas(case: Tokens) -> None:
    check(case, grid.compare_loss(case, DEVICE))


@pytest.mark.slow
@pytest.mark.parametrize("low", [False, True])
def test_the_loss_of_training_by_the_kernel_is_that_by_formulas(
    low: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    output, start = torch.nn.Linear(16, 90).to(DEVICE), torch.randn(40, 16, device=DEVICE)
    target = torch.randint(90, (40,), device=DEVICE)
    found = []
    number_format = torch.bfloat16 if low else torch.float32
    for by_kernel in (False, True):
        if by_kernel:
            monkeypatch.setitem(choice.verified, choice.LOSS, (DEVICE.type, number_format))
        hidden = start.clone().requires_grad_()
        output.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=low):
            value, nll = loss.smoothed(hidden, output, target, 0.1)
        (value / 3).backward()
        assert not nll.requires_grad
        found.append([value, nll, hidden.grad, output.weight.grad, output.bias.grad])
    for plain, mine in zip(*found, strict=True):
        assert plain is not None and mine is not None and plain.dtype == mine.dtype
        assert grid.difference(mine.detach(), plain.detach()) < (0.02 if low else 1e-5)


def learnt(shape: Shape, again: bool = False) -> list[torch.Tensor]:
    """Output and gradients with dropout, the forward pass made again for the backward one."""
    made, weight = grid.inputs(shape, DEVICE)
    q, k, v, keys, values = (x.requires_grad_() for x in made[:5] if x is not None)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, shape.tau, keys, values, scale=0.25, rate=shape.rate)

    torch.manual_seed(5)
    o = checkpoint(run, q, k, v, use_reentrant=False) if again else run(q, k, v)
    assert isinstance(o, torch.Tensor)
    return [o.detach(), *torch.autograd.grad((o * weight).sum(), [q, k, v, keys, values])]


@pytest.mark.slow
def test_dropout_is_the_same_when_a_layer_is_computed_again() -> None:
    shape = Shape(20, 20, 2, 16, "both", rate=0.5)
    for once, twice in zip(learnt(shape), learnt(shape, again=True), strict=True):
        assert torch.equal(once, twice)


@pytest.mark.slow
def test_dropout_drops_as_many_as_it_is_told() -> None:
    ones = torch.ones(1, 2, 130, 16, device=DEVICE)
    torch.manual_seed(3)
    o = attention(ones * 0, ones * 0, ones, 2, None, torch.zeros(1, 5, 16), scale=1.0, rate=0.25)
    kept = o[..., 0] * 0.75  # of 260 times 130 keys, all looked at alike
    assert abs(float(kept.mean()) - 0.75) < 0.01 and float(kept.std()) > 0.02


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_kernels_are_verified_before_training(precision: str) -> None:
    try:
        selftest.serve(True, DEVICE, precision, 32)
        assert set(choice.verified) == {choice.LOSS, choice.RELATIVE}
    finally:
        choice.verified.clear()


@pytest.mark.slow
def test_inputs_may_lie_in_memory_as_projections_make_them() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 20, 2, 16, device=DEVICE).transpose(2, 3)
    keys = torch.randn(1, 5, 16, device=DEVICE)
    allowed = (torch.rand(2, 20, device=DEVICE) > 0.3)[:, None, None].expand(2, 1, 20, 20)
    ours = attention(q, k, v, 2, keys, None, scale=0.25, allowed=allowed)
    shape = Shape(20, 20, 2, 16, "keys")
    plain = grid.plain(grid.Given(q, k, v, keys, None, allowed), shape)
    torch.testing.assert_close(ours, plain)
    pairs = torch.rand(1, 1, 20, 20, device=DEVICE) > 0.3  # another mask for each query
    for mask in (pairs, pairs.mT):
        ours = attention(q, k, v, 2, keys, None, scale=0.25, allowed=mask)
        torch.testing.assert_close(ours, grid.plain(grid.Given(q, k, v, keys, None, mask), shape))
