"""What rows that stand side by side for one sentence share: everything but their states."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nmt.checks import example
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Extent, Positions
from nmt.encodings.passes import cross_step, step, whole, with_positions
from nmt.encodings.positions import Index, Remaining
from nmt.encodings.positions_columns import ColumnPositions, Segment
from nmt.encodings.registry import POSITIONS, position_class
from nmt.encodings.vectors.distances import distinct
from nmt.model.layers import AttentionRecord, watching
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
MADE: dict[str, Positions] = {
    "remaining": Remaining(noise=3),
    "column": ColumnPositions("order"),
    "segment": Segment("heads"),
}
READER = Encoding(Dims("encoder", 1, 2, 8, 4))  # does nothing
READER.columns = frozenset({"heads", "words", "order"})
TOKENWISE = [name for name in POSITIONS if not position_class(name).distances_only]


def training(rows: int, n: int = 9) -> Context:
    """A pass over sentences that have columns, in training."""
    at, ids = torch.arange(n)[None], example.ids(rows, n, 30)
    return Context(
        "encoder", at, at, at, rows=rows, allowed=(ids != 0)[:, None, None, :],
        lengths=(ids != 0).sum(1), tokens=ids,
        columns=example.columns([READER], ids), training=True,
    )  # fmt: skip


def both(t: Tensor) -> Tensor:
    """Two rows for each."""
    return t.repeat_interleave(2, 0)


def in_streams(one: Context) -> Context:
    """The same pass with two rows for each sentence."""
    assert one.lengths is not None and one.tokens is not None and one.allowed is not None
    return replace(
        one, rows=2 * one.rows, streams=2, allowed=both(one.allowed), lengths=both(one.lengths),
        tokens=both(one.tokens), columns={name: both(c) for name, c in one.columns.items()},
        _memo={},
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", TOKENWISE)
def test_streams_share_the_positions_of_their_row(name: str, rows: int) -> None:
    """Random ones are drawn for sentences, so that they are those of one stream."""
    positions = MADE[name] if name in MADE else position_class(name)()
    one = training(rows)
    single, two = (
        with_positions(context, positions) for context in (one, in_streams(one)) if seeded()
    )
    assert two.rows == 2 * rows and two.positions == positions
    for at, double in (
        (single.queries, two.queries), (single.keys, two.keys), (single.new_keys, two.new_keys)
    ):  # fmt: skip
        assert torch.equal(both(at.expand(rows, -1)), double.expand(2 * rows, -1))


def seeded() -> bool:
    torch.manual_seed(1)
    return True


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["tree", "graph"])
def test_streams_share_the_distances_of_their_row(name: str, rows: int) -> None:
    positions: Positions = position_class(name)()
    one = training(rows)
    delta = with_positions(in_streams(one), positions).delta
    assert torch.equal(delta, both(with_positions(one, positions).delta))


def test_streams_share_the_noise_of_a_length() -> None:
    one = training(40)
    two = with_positions(in_streams(one), Remaining(noise=3))
    assert len(two.queries[:, 0].unique()) > 3
    assert torch.equal(two.queries[0::2], two.queries[1::2])


def probabilities(model: Transformer, source: Tensor, target: Tensor) -> list[AttentionRecord]:
    looks: list[AttentionRecord] = []
    columns = example.columns(model.entries, source)
    with torch.inference_mode(), watching(model, looks.append):
        model(source, target, columns)
    return looks


@pytest.mark.parametrize("other, at", [("t5", "sample"), ("fire", "augment")])
def test_both_streams_of_a_token_look_alike_in_training(
    other: str, at: str, tiny: Make, ids: Ids
) -> None:
    """The modulus is the same for both, and so is a bias of positions that were drawn."""
    model = tiny(f"encoding=[complex_order,{other}]", f"+encoding.{other}.at={at}").train()
    for look in probabilities(model, ids(3, 9), ids(3, 7, seed=1)):
        assert torch.equal(look.probabilities[0::2], look.probabilities[1::2])


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("name", POSITIONS)
def test_what_the_host_knows_is_so(name: str, learning: bool) -> None:
    positions = MADE[name] if name in MADE else position_class(name)()
    torch.manual_seed(1)
    read = with_positions(replace(training(3), training=learning), positions)
    torch.manual_seed(1)
    known = with_positions(replace(training(3), training=learning, extent=Extent(9, 9)), positions)
    assert torch.equal(read.delta, known.delta)
    if positions.integer and not positions.distances_only:
        for which in ("queries", "keys"):
            (least, greatest), (first, last) = known.bounds(which), read.bounds(which)
            assert least <= first <= last <= greatest
        assert known.max_distance() >= read.max_distance()
    assert read.contiguous_extent is None
    assert (known.contiguous_extent is not None) == (name in ("index", "shift"))
    for tau in (None, 3):
        for own, other in zip(distinct(known, tau), distinct(read, tau), strict=True):
            assert torch.equal(own, other)


def test_a_part_of_the_queries_has_not_all_distances() -> None:
    keys = torch.arange(5)[None]
    last = step("decoder", 3, 2, keys.device)
    assert torch.equal(last.queries, keys[:, 3:]) and torch.equal(last.keys, keys)
    assert last.contiguous_extent == (5, 5, 1) and last.bounds("queries") == (0, 4)
    assert distinct(last)[0].tolist() == [-4, -3, -2, -1, 0, 1]


def test_hypotheses_are_not_taken_for_tokens() -> None:
    """Four that stand at the fourth token, and look at a source of five."""
    own = step("decoder", 3, 1, torch.device("cpu"))
    cross = cross_step(own, 5, 4, cached=True)
    assert cross.queries.tolist() == [[3, 3, 3, 3]] and cross.new_keys.shape == (1, 0)
    assert cross.extent == (4, 5, 4) and cross.contiguous_extent is None
    assert distinct(cross)[0].tolist() == [-3, -2, -1, 0, 1]
    alone = cross_step(own, 5, 1, cached=False)
    assert alone.contiguous_extent == (4, 5, 1) and torch.equal(alone.new_keys, alone.keys)
    assert distinct(alone)[0].tolist() == [-3, -2, -1, 0, 1]


@pytest.mark.parametrize("queries, keys", [(31, 5), (2, 31)])
def test_tokens_far_beyond_the_other_text_share_a_distance(queries: int, keys: int) -> None:
    own = step("decoder", queries - 1, 1, torch.device("cpu"))
    cross = cross_step(own, keys, 1, cached=True)
    for tau in (None, 0, 4):
        distances, index = distinct(cross, tau)
        delta = cross.delta if tau is None else cross.delta.clamp(-tau, tau)
        assert torch.equal(distances[index], delta)
        assert torch.equal(distances, delta.unique())


def test_positions_that_count_in_steps_are_no_neighbours() -> None:
    two = with_positions(whole("encoder", 4), Index(start=3, step=2))
    assert two.contiguous_extent is None
    assert two.bounds("keys") == (3, 9) and two.max_distance() == 6


def test_what_nobody_remembered_cannot_be_recalled() -> None:
    at = torch.arange(3)[None]
    context = Context("decoder", at, at, at)
    context.remember("mine", 0, torch.ones(1, 2, 3, 1))
    assert context.recall("mine", 0).shape == (1, 2, 3, 1)
    for name, layer in (("theirs", 0), ("mine", 1)):
        with pytest.raises(ValueError, match="in `project`, which comes first") as e:
            context.recall(name, layer)
        assert str(e.value).startswith(f"recall('{name}', layer={layer}): nothing is remembered")


def test_the_streams_of_a_sentence_share_what_is_drawn() -> None:
    at = torch.arange(3)[None]
    context = Context("decoder", at, at, at, rows=6, streams=2)
    numbers = context.draw(lambda rows: torch.rand(rows, 3))  # [batch, 3]
    assert numbers.shape == (6, 3) and torch.equal(numbers[::2], numbers[1::2])
    assert len(numbers.unique(dim=0)) == 3
