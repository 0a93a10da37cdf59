"""Where kernels serve, and where the plain formulas do."""

from functools import partial
from typing import Any

import pytest
import torch

from nmt.kernels import choice
from nmt.training import crossentropy, loss

LOW = torch.bfloat16


def of(width: int, number_format: torch.dtype = LOW) -> torch.Tensor:
    return torch.empty(1, 1, 2, width, dtype=number_format)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels were compared with the formulas in bfloat16 here."""
    for kernel in (choice.LOSS, choice.RELATIVE):
        monkeypatch.setitem(choice.verified, kernel, ("cpu", LOW))


def test_what_is_not_verified_is_left_to_the_formulas() -> None:
    for kernel in (choice.LOSS, choice.RELATIVE):
        assert not choice.serves(kernel, of(64), True)


@pytest.mark.parametrize("width, tau, fits", [
    (64, 16, True), (16, 1, True), (128, 128, True), (64, 0, False), (64, 129, False),
    (48, 16, False), (8, 2, False), (256, 16, False),
])  # fmt: skip
def test_widths_and_distances(width: int, tau: int, fits: bool) -> None:
    assert choice.fits_relative(of(width), of(width), of(width), tau) is fits


def test_numbers_of_other_kinds_or_of_two_kinds_are_left_to_the_formulas(verified: None) -> None:
    low, wide, double = of(64), of(64, torch.float32), of(64, torch.float64)
    assert not choice.fits_relative(wide, low, low, 16)
    assert not choice.fits_relative(low, low, wide, 16)
    assert not choice.fits_relative(low, low, of(32), 16)
    assert not choice.serves(choice.RELATIVE, double, True)
    assert not choice.serves(choice.RELATIVE, wide, True)


def test_only_what_learns_is_served(verified: None) -> None:
    assert choice.serves(choice.LOSS, of(64), True)
    assert not choice.serves(choice.LOSS, of(64), False)


def test_blocks_are_powers_of_two_that_hold_what_there_is() -> None:
    found = [choice.block(n, 64) for n in (1, 16, 17, 32, 33, 64, 65, 4096)]
    assert found == [16, 16, 32, 32, 64, 64, 64, 64]
    assert choice.block(4096, 128) == 32
    assert [choice.warps(n, n) for n in (16, 32, 64)] == [2, 4, 8]


def test_the_loss_asks_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def by_kernel(*inputs: Any) -> object:
        asked.append(inputs[-1])
        return partial(crossentropy.loss_by_formulas, needed=True)(*inputs)

    monkeypatch.setattr(crossentropy, "loss_by_kernel", by_kernel)
    output, target = torch.nn.Linear(4, 7), torch.tensor([0, 6, 3])
    hidden = torch.randn(3, 4, requires_grad=True)
    before, _ = loss.smoothed(hidden, output, target, 0.1)
    assert not asked  # on a CPU
    monkeypatch.setitem(choice.verified, choice.LOSS, ("cpu", LOW))
    with torch.autocast("cpu", LOW):
        loss.smoothed(hidden, output, target, 0.1)
        with torch.no_grad():
            loss.smoothed(hidden, output, target, 0.1)
    assert asked == [LOW]
    assert torch.equal(loss.smoothed(hidden, output, target, 0.1)[0], before) and len(asked) == 1
