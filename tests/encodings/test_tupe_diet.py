"""TUPE and DIET against their formulas in loops."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.encodings.attention.tupe import Tupe
from nmt.encodings.base import Encoding
from nmt.encodings.biases.bias_table import BiasTable
from nmt.encodings.biases.diet import Diet
from nmt.encodings.biases.t5 import bucket
from nmt.encodings.context import Context, Positions
from nmt.encodings.positions import Index, Sample, Shift
from nmt.encodings.positions_columns import ColumnPositions, Tree
from nmt.encodings.site import Encodings
from tests.encodings.attending import attend, dims, pass_over, qkv, shaken

SITES = pytest.mark.parametrize("site", ["encoder", "decoder"])


@SITES
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("reset, start", [(False, 0), (True, 0), (True, 1), (True, 3)])
def test_tupe_in_loops(site: str, relative: bool, reset: bool, start: int) -> None:
    buckets, far = (8, 6) if relative else (None, None)
    e = shaken(Tupe(dims(site, positions=Index(start)), 9 + start, buckets, far, reset))
    assert isinstance(e, Tupe)
    q, k, v = qkv(9, e.dims)

    def normed(x: Tensor) -> Tensor:
        x = (x - x.mean()) / (x.var(correction=0) + e.norm.eps).sqrt()
        return x * e.norm.weight + e.norm.bias

    p = [normed(x) for x in e.vectors]
    for layer in range(2):
        got = attend(e, q, k, v, pass_over(9, site), layer)[0]
        for h, i, j in product(range(2), range(9), range(9)):
            part = slice(4 * h, 4 * h + 4)  # the head's part of U
            a = e.to_query.weight[part] @ p[start + i] + e.to_query.bias[part]
            b = e.to_key.weight[part] @ p[start + j] + e.to_key.bias[part]
            term = a @ b / 8**0.5
            if e.distances is not None:
                x = int(bucket(torch.tensor(j - i), 8, 6, site == "encoder"))
                term = term + e.distances[h, x]
            if e.first is not None and i == 0:
                term = e.first[0, h]
            elif e.first is not None and j == 0:
                term = e.first[1, h]
            wanted = q[:, h, i] @ k[:, h, j].T / 8**0.5
            assert torch.allclose(got[:, h, i, j], wanted.diagonal() + term, atol=1e-9)


@SITES
@pytest.mark.parametrize("at", [Index(start=2), Shift(k=5), Sample(30, test_length=20)])
def test_tupe_unties_the_first_token_wherever_it_stands(site: str, at: Positions) -> None:
    e = shaken(Tupe(dims(site, positions=at), 30, reset=True))
    assert isinstance(e, Tupe) and e.first is not None
    c = pass_over(9, site)
    c.training = True
    bias = Encodings([e]).bias(0, c)
    assert bias is not None
    row, column = e.first[:, :, None].expand(2, 2, 9)
    assert torch.equal(bias[:, :, 0], row.expand_as(bias[:, :, 0]))
    assert torch.equal(bias[:, :, 1:, 0], column[:, 1:].expand_as(bias[:, :, 1:, 0]))
    assert not (bias[:, :, 1:, 1:] == column[:, None, 1:]).any()


def test_tupe_unties_the_first_token_of_a_reordered_sentence() -> None:
    """The column says where tokens stand in the translation; the first one is still the first."""
    e = shaken(Tupe(dims(positions=ColumnPositions("order")), 30, reset=True))
    assert isinstance(e, Tupe) and e.first is not None
    c = pass_over(3)
    c.columns = {"order": torch.tensor([[2, 0, 1], [0, 1, 2]])}
    bias = Encodings([e]).bias(0, c)
    assert bias is not None
    assert torch.equal(bias[:, :, 1:, 0], e.first[1][:, None].expand(2, 2, 2))
    assert (bias[0, :, 1:, 1:] != e.first[1][:, None, None]).all()


def test_tupe_serves_all_layers_with_one_term() -> None:
    c, e = pass_over(9), Tupe(dims())
    assert e.bias(0, c) is e.bias(1, c)


def test_diet_in_loops() -> None:
    for per_layer in (False, True):
        absolute = shaken(Diet(dims(), longest=9, rank=3, per_layer=per_layer))
        relative = shaken(Diet(dims(), reference="relative", longest=3, per_layer=per_layer))
        assert isinstance(absolute, Diet) and isinstance(relative, Diet)
        assert absolute.to_key is not None and relative.to_key is None
        for layer in range(2):
            own = layer * per_layer
            a, r = absolute.bias(layer, pass_over(9)), relative.bias(layer, pass_over(9))
            assert a is not None and r is not None and a.shape == r.shape == (1, 2, 9, 9)
            for h, i, j in product(range(2), range(9), range(9)):
                wanted = absolute.to_query[own, h, i] @ absolute.to_key[own, h, j]
                assert torch.allclose(a[0, h, i, j], wanted, atol=1e-12)
                assert r[0, h, i, j] == relative.to_query[own, h, max(-2, min(2, j - i)) + 2, 0]


def test_positions_of_each_row_are_its_own() -> None:
    """As under random shifts: [batch, n] positions, the encodings must not mix rows."""
    at = torch.tensor([[0, 2, 5], [1, 3, 4]])
    kinds = (Tupe(dims()), Diet(dims(), rank=3), BiasTable(dims(), reference="absolute"))
    for e in map(shaken, kinds):
        both = e.bias(0, Context("encoder", at, at, at, rows=2))
        assert both is not None and both.shape == (2, 2, 3, 3)
        for row in range(2):
            one = at[row : row + 1]
            alone = e.bias(0, Context("encoder", one, one, one))
            assert alone is not None and torch.allclose(alone[0], both[row], atol=1e-12)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Tupe(dims(), buckets=32), "buckets and max_distance: give both"),
        (lambda: Tupe(dims(), buckets=7, max_distance=9), "buckets=7: must be a multiple of 4"),
        (lambda: Diet(dims()), "rank=null: reference=absolute needs at least 1"),
        (lambda: Diet(dims(), reference="relative", rank=4), "rank=4: reference=relative learns"),
        (
            lambda: Diet(dims(positions=Tree()), rank=4),
            "reference=absolute: needs a position for every",
        ),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Encoding], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
