"""Which positions tokens get, and what a pass knows of them: drawn, by columns, and of streams."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import example
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Positions, cross_step, decoding_step, with_positions
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Augment, Index, PoSE, Remaining, Sample, Shift
from nmt.encodings.positions_columns import ColumnPositions, Segment
from nmt.encodings.registry import POSITIONS, position_class
from nmt.encodings.vectors.distances import distinct
from tests.encodings.attending import dims, pass_over

MADE: dict[str, Positions] = {
    "remaining": Remaining(noise=3),
    "column": ColumnPositions("order"),
    "segment": Segment("heads"),
}
READER = Encoding(Dims("encoder", 1, 2, 8, 4))  # does nothing
READER.columns = frozenset({"heads", "words", "order"})


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


@pytest.mark.parametrize("name", POSITIONS)
def test_streams_share_the_positions_of_their_row(name: str) -> None:
    """Random ones are drawn for sentences, so that they are those of one stream."""
    positions = MADE[name] if name in MADE else position_class(name)()
    one = training(rows=3)
    torch.manual_seed(1)
    single = with_positions(one, positions)
    torch.manual_seed(1)
    two = with_positions(in_streams(one), positions)
    assert torch.equal(both(single.delta.expand(3, -1, -1)), two.delta.expand(6, -1, -1))
    if not positions.distances_only:
        of_one, of_two = single.query_positions, two.query_positions
        assert torch.equal(both(of_one.expand(3, -1)), of_two.expand(6, -1))


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("name", POSITIONS)
def test_what_the_host_knows_is_so(name: str, learning: bool) -> None:
    positions = MADE[name] if name in MADE else position_class(name)()
    torch.manual_seed(1)
    read = with_positions(replace(training(3), training=learning), positions)
    torch.manual_seed(1)
    known = with_positions(replace(training(3), training=learning, query_end=9), positions)
    assert torch.equal(read.delta, known.delta)
    if positions.integer and not positions.distances_only:
        for which in ("query_positions", "key_positions"):
            (least, greatest), (first, last) = known.bounds(which), read.bounds(which)
            assert least <= first <= last <= greatest
        assert known.max_distance() >= read.max_distance()
    assert read.consecutive_end is None
    assert (known.consecutive_end is not None) == (name in ("index", "shift"))
    for tau in (None, 3):
        for own, other in zip(distinct(known, tau), distinct(read, tau), strict=True):
            assert torch.equal(own, other)


def test_a_part_of_the_queries_has_not_all_distances() -> None:
    keys = torch.arange(5)[None]
    last = decoding_step("decoder", 3, 2, keys.device)
    assert torch.equal(last.query_positions, keys[:, 3:]) and torch.equal(last.key_positions, keys)
    assert last.consecutive_end == 5 and last.bounds("query_positions") == (0, 4)
    assert distinct(last)[0].tolist() == [-4, -3, -2, -1, 0, 1]


def test_hypotheses_are_not_taken_for_tokens() -> None:
    """Four that stand at the fourth token, and look at a source of five."""
    own = decoding_step("decoder", 3, 1, torch.device("cpu"))
    cross = cross_step(own, 5, 4, cached=True)
    assert cross.query_positions.tolist() == [[3, 3, 3, 3]]
    assert cross.new_key_positions.shape == (1, 0)
    assert (cross.query_end, cross.beams, cross.consecutive_end) == (4, 4, None)
    assert distinct(cross)[0].tolist() == [-3, -2, -1, 0, 1]
    alone = cross_step(own, 5, 1, cached=False)
    assert alone.consecutive_end == 4
    assert torch.equal(alone.new_key_positions, alone.key_positions)
    assert distinct(alone)[0].tolist() == [-3, -2, -1, 0, 1]


@pytest.mark.parametrize("queries, keys", [(31, 5), (2, 31)])
def test_tokens_far_beyond_the_other_text_share_a_distance(queries: int, keys: int) -> None:
    own = decoding_step("decoder", queries - 1, 1, torch.device("cpu"))
    cross = cross_step(own, keys, 1, cached=True)
    for tau in (None, 0, 4):
        distances, index = distinct(cross, tau)
        delta = cross.delta if tau is None else cross.delta.clamp(-tau, tau)
        assert torch.equal(distances[index], delta)
        assert torch.equal(distances, delta.unique())


def test_what_nobody_remembered_cannot_be_recalled() -> None:
    at = torch.arange(3)[None]
    context = Context("decoder", at, at, at)
    context.remember("mine", 0, torch.ones(1, 2, 3, 1))
    assert context.recall("mine", 0).shape == (1, 2, 3, 1)
    for name, layer in (("theirs", 0), ("mine", 1)):
        with pytest.raises(ValueError, match=rf"^recall\('{name}', layer={layer}\): nothing was"):
            context.recall(name, layer)


def training_pass(n: int, rows: int = 2, lengths: list[int] | None = None) -> Context:
    c = pass_over(n, rows=rows)
    c.training = True
    c.lengths = None if lengths is None else torch.tensor(lengths)
    return c


def positions(p: Positions, n: int = 9, rows: int = 2, lengths: list[int] | None = None) -> Tensor:
    """Those of one training pass [rows, n]."""
    return with_positions(training_pass(n, rows, lengths), p).query_positions


def embedded(p: Positions, c: Context) -> Tensor:
    e = Absolute(dims(positions=p))
    return e.embed(torch.zeros(c.rows, c.query_positions.shape[1], 8), with_positions(c, p))


def test_shift_moves_each_sentence_as_a_whole() -> None:
    torch.manual_seed(0)
    shifted = with_positions(pass_over(9), Shift(500, 7))
    assert torch.equal(shifted.key_positions[0], torch.arange(9) + 7)
    starts = positions(Shift(k=4), rows=400)
    assert torch.equal(starts - starts[:, :1], torch.arange(9).expand(400, -1))
    counts = torch.bincount(starts[:, 0])
    assert len(counts) == 4 and counts.min() > 70  # of 100 expected, deviation 9


@pytest.mark.parametrize(
    "p", [Shift(k=1), Augment(0, 0, 1), Sample(longest=9, test_length=9), PoSE(9, 5)]
)
def test_one_choice_is_the_index(p: Positions) -> None:
    assert torch.equal(embedded(p, training_pass(9)), embedded(Index(), training_pass(9)))
    assert torch.equal(embedded(p, pass_over(9)), embedded(Index(), pass_over(9)))


def test_augment_shifts_jitters_and_scales() -> None:
    torch.manual_seed(0)
    plain = torch.arange(9.0)
    shifts = positions(Augment(5, 0, 1), rows=500) - plain
    assert shifts.std(1).max() < 1e-5 and 4.8 < shifts.abs().max() <= 5 and shifts.min() < -4.8
    noise = positions(Augment(0, 0.5, 1), rows=500) - plain
    assert 0.49 < noise.abs().max() <= 0.5 and noise.std(1).min() > 0.05
    factors = positions(Augment(0, 0, 2), rows=500)[:, 1:] / plain[1:]
    assert factors.std(1).max() < 1e-5 and 0.5 <= factors.min() < 0.51 and 1.95 < factors.max() <= 2
    assert abs(factors[:, 0].log().mean()) < 0.1  # uniform in its logarithm
    assert positions(Augment(), rows=500).diff().min() > 0


def test_augment_centres_on_the_real_tokens() -> None:
    c = pass_over(9)
    c.lengths = torch.tensor([9, 4])
    at = with_positions(c, Augment(center=True)).query_positions
    assert torch.equal(at[0], torch.arange(9.0) - 4)
    assert torch.equal(at[1, :4], torch.tensor([-1.5, -0.5, 0.5, 1.5]))


def test_samples_are_sorted_and_without_repetition() -> None:
    torch.manual_seed(0)
    drawn = positions(Sample(longest=30, test_length=10), n=9, rows=300)
    assert drawn.diff().min() >= 1 and drawn.min() == 0 and drawn.max() == 29
    assert torch.bincount(drawn.flatten(), minlength=30).min() > 50  # of 90 expected
    shared = positions(Sample(longest=30, test_length=10, per_batch=True), rows=300)
    assert shared.shape == (1, 9) and shared.diff().min() >= 1


@pytest.mark.parametrize("test", ["even", "sample"])
def test_evaluation_samples_are_always_the_same(test: Any) -> None:
    p = Sample(longest=100, test=test, test_length=20)
    at = with_positions(pass_over(20), p).query_positions[0]
    state = torch.random.get_rng_state()
    assert at.diff().min() >= 1 and at.max() < 100
    assert torch.equal(torch.random.get_rng_state(), state)  # draws nothing from the global stream
    torch.manual_seed(5)
    for t in range(20):
        one, keys = torch.tensor([[t]]), torch.arange(t + 1)[None]
        step = with_positions(Context("decoder", one, keys, one), p)
        assert step.query_positions.item() == at[t]
        assert torch.equal(step.key_positions[0], at[: t + 1])
    assert (test == "even") == torch.equal(at, torch.arange(20) * 5)


def test_too_long_sentences_are_refused() -> None:
    p = Sample(longest=30, test_length=10)
    assert (p.max_length(training=True), p.max_length(training=False)) == (30, 10)
    with pytest.raises(ValueError, match=r"test_length=10: too few positions for 11 tokens"):
        with_positions(pass_over(11), p)
    assert positions(p, n=30)[0].tolist() == list(range(30))
    with pytest.raises(ValueError, match=r"longest=30: too few positions for 31 tokens"):
        positions(p, n=31)


def skipwise(n: int, longest: int, chunks: int, rows: int) -> list[list[int]]:
    """PoSE by plain loops: position + u_i in chunk i, u_0 = 0, u_i uniform in u_(i-1) .. Lt - L."""
    cuts = torch.rand(rows, chunks - 1, dtype=torch.float64).tolist()
    skips = [torch.rand(rows, 1, dtype=torch.float64)[:, 0].tolist() for _ in range(chunks - 1)]
    found = []
    for row in range(rows):
        borders = sorted(1 + int(cut * (n - 1)) for cut in cuts[row])
        u = [0]
        for skip in skips:
            u.append(u[-1] + int(skip[row] * (longest - n - u[-1] + 1)))
        found.append([t + u[sum(border <= t for border in borders)] for t in range(n)])
    return found


@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_skip_positions_as_in_plain_loops(chunks: int) -> None:
    torch.manual_seed(0)
    drawn = positions(PoSE(30, chunks), n=9, rows=50)
    torch.manual_seed(0)
    assert drawn.tolist() == skipwise(9, 30, chunks, 50)


def test_short_sentences_of_a_batch_skip_further_and_padding_stays_in_the_table() -> None:
    torch.manual_seed(0)
    drawn = positions(PoSE(longest=40), n=30, rows=400, lengths=[4, 30] * 200)
    assert drawn.max() == 39 and drawn[0::2, 3].max() == 39 and drawn[1::2, 3].max() <= 13
    assert positions(PoSE(40), n=3, rows=3, lengths=[0, 1, 2])[:, 0].eq(0).all()
    with pytest.raises(ValueError, match=r"at.pose.longest=30: too few positions for 31 tokens"):
        positions(PoSE(longest=30), n=31)
    assert (PoSE(30).max_length(training=True), PoSE(30).max_length(training=False)) == (30, None)


@pytest.mark.parametrize("p", [Shift(), Augment(), Sample(), PoSE()])
def test_a_pass_draws_once_and_the_next_draws_anew(p: Positions) -> None:
    torch.manual_seed(3)
    c = training_pass(9)
    drawn = with_positions(c, p)
    assert drawn.query_positions is drawn.key_positions is drawn.new_key_positions
    assert with_positions(c, type(p)()) is drawn  # equal positions of another entry
    again = with_positions(training_pass(9), p).query_positions
    assert not torch.equal(drawn.query_positions, again)
    assert not torch.equal(drawn.query_positions[0], drawn.query_positions[1])
    torch.manual_seed(3)
    assert torch.equal(with_positions(training_pass(9), p).query_positions, drawn.query_positions)
