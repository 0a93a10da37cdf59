"""Places within segments, and the two levels that they make with the segments' own numbers."""

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.input.learned import Learned
from nmt.encodings.passes import with_positions
from nmt.encodings.positions_columns import Segment
from nmt.encodings.registry import create
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.site import Encodings
from tests.encodings.attending import attend, dims, pass_over, qkv

SEGMENTS = [[0, 0, 0, 1, 1, 2, 0, 0, 3], [4, 4, 4, 4, 4, 4, 4, 4, 5]]


def beside() -> Context:
    context = pass_over(9)
    context.columns = {"segments": torch.tensor(SEGMENTS)}
    return context


def test_a_segment_begins_where_its_number_changes() -> None:
    places = [[0, 1, 2, 0, 1, 0, 0, 1, 0], [*range(8), 0]]
    found = with_positions(beside(), Segment())
    assert found.queries.equal(torch.tensor(places)) and found.delta[0, 4, 3] == -1
    assert found.delta[0, 1, 4] == 0  # of another segment, where it counts the same


def test_two_levels_as_the_page_writes_them() -> None:
    """BiPE: x_t + w[place], and queries and keys turned by the numbers of their segments."""
    page = (Path(__file__).parents[2] / "docs/encodings.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "segment:" in b)
    page_entries: Any = OmegaConf.to_container(OmegaConf.create(block))
    entries = page_entries["encoding"]
    places, segments = create(entries, dims())
    assert isinstance(places, Learned) and isinstance(segments, Rotary)
    assert [type(e) for e in create(entries, dims("decoder"))] == [Learned]
    context, x = beside(), torch.randn(2, 9, 8)
    both = Encodings([places, segments])
    embedded = both.embed(x, context)
    numbers = torch.tensor(SEGMENTS)
    for row in range(2):
        for t in range(9):
            first = t
            while first and numbers[row, first - 1] == numbers[row, t]:
                first -= 1
            torch.testing.assert_close(embedded[row, t], x[row, t] + places.weight[t - first])
    q, k, v = qkv(9, dims())
    found = attend(list(both), q, k, v, context)[0]
    for row, i, j in product(range(2), range(9), range(9)):
        apart = float(numbers[row, j] - numbers[row, i])
        wanted = sum(
            _turned_product(
                q[row, :, i, b : b + 2], k[row, :, j, b : b + 2], apart / 100 ** (b / 2)
            )
            for b in (0, 2)
        )
        torch.testing.assert_close(found[row, :, i, j], wanted / 2)


def _turned_product(q: Tensor, k: Tensor, angle: float) -> Tensor:
    """q . k with k turned by an angle: [heads]."""
    cos, sin = math.cos(angle), math.sin(angle)
    return (q * torch.stack([k[:, 0] * cos - k[:, 1] * sin, k[:, 0] * sin + k[:, 1] * cos], 1)).sum(
        1
    )
