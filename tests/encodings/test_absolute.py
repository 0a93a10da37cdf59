"""Sinusoids: golden numbers, layouts; learned ones that are clipped."""

import pytest
import torch

from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.learned import Learned
from nmt.encodings.limits import max_length
from nmt.encodings.sinusoids import sinusoids


def test_golden_numbers() -> None:
    one, hundred = sinusoids(torch.tensor([1, 100]), 512)
    wanted = torch.tensor([0.841471, 0.540302, 0.821856, 0.569695, 0.801962, 0.597375])
    assert torch.allclose(one[:6], wanted, atol=1e-6)
    wanted = torch.tensor([-0.506366, 0.862319, 0.797542, -0.603263])
    assert torch.allclose(hundred[:4], wanted, atol=1e-6)
    assert torch.allclose(hundred[-2:], torch.tensor([0.010366, 0.999946]), atol=1e-6)
    other = sinusoids(torch.tensor([1]), 512, "halves", "tensor2tensor")[0]
    assert torch.allclose(other[:3], torch.tensor([0.841471, 0.821779, 0.801805]), atol=1e-6)
    assert torch.allclose(other[256:258], torch.tensor([0.540302, 0.569807]), atol=1e-6)


def test_halves_is_a_permutation_of_interleaved() -> None:
    a, b = sinusoids(torch.arange(20), 16), sinusoids(torch.arange(20), 16, "halves")
    assert torch.equal(torch.cat([a[:, 0::2], a[:, 1::2]], 1), b)


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="even width, not 7"):
        Absolute(Dims("encoder", 1, 1, 7, 7))


def test_learned_positions_may_be_clipped() -> None:
    at = torch.arange(6)[None]
    clipped = Learned(Dims("encoder", 1, 1, 8, 8), size=5, beyond="clip")
    x = clipped.embed(torch.zeros(1, 6, 8), Context("encoder", at, at, at))
    assert max_length(clipped, False) is None and torch.equal(x[0, 5], x[0, 4])
