"""Random positions: their ranges and order, one draw per pass, and none in evaluation."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context, Positions
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.passes import with_positions
from nmt.encodings.positions import Augment, Index, PoSE, Sample, Shift
from nmt.encodings.registry import create
from tests.encodings.attending import dims, pass_over


def training(n: int, rows: int = 2, lengths: list[int] | None = None) -> Context:
    c = pass_over(n, rows=rows)
    c.training = True
    c.lengths = None if lengths is None else torch.tensor(lengths)
    return c


def positions(p: Positions, n: int = 9, rows: int = 2, lengths: list[int] | None = None) -> Tensor:
    """Those of one training pass [rows, n]."""
    return with_positions(training(n, rows, lengths), p).queries


def embedded(p: Positions, c: Context) -> Tensor:
    e = Absolute(dims(positions=p))
    return e.embed(torch.zeros(c.rows, c.queries.shape[1], 8), with_positions(c, p))


def test_shift_moves_each_sentence_as_a_whole() -> None:
    torch.manual_seed(0)
    starts = positions(Shift(k=4), rows=400)
    assert torch.equal(starts - starts[:, :1], torch.arange(9).expand(400, -1))
    counts = torch.bincount(starts[:, 0])
    assert len(counts) == 4 and counts.min() > 70  # of 100 expected, deviation 9


@pytest.mark.parametrize("p", [Shift(k=1), Sample(longest=9, test_length=9), PoSE(9, 5)])
def test_one_choice_is_the_index(p: Positions) -> None:
    assert torch.equal(embedded(p, training(9)), embedded(Index(), training(9)))
    assert torch.equal(embedded(p, pass_over(9)), embedded(Index(), pass_over(9)))


def test_evaluation_shifts_by_a_constant() -> None:
    for test in (0, 500):
        assert torch.equal(
            with_positions(pass_over(9), Shift(500, test)).keys[0], torch.arange(9) + test
        )


def test_augmented_positions_evaluate_as_sinusoids() -> None:
    assert torch.equal(embedded(Augment(), pass_over(9)), embedded(Index(), pass_over(9)))


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
    at = with_positions(c, Augment(center=True)).queries
    assert torch.equal(at[0], torch.arange(9.0) - 4)
    assert torch.equal(at[1, :4], torch.tensor([-1.5, -0.5, 0.5, 1.5]))


def test_samples_are_sorted_and_without_repetition() -> None:
    torch.manual_seed(0)
    drawn = positions(Sample(longest=30, test_length=10), n=9, rows=300)
    assert drawn.diff().min() >= 1 and drawn.min() == 0 and drawn.max() == 29
    assert torch.bincount(drawn.flatten(), minlength=30).min() > 50  # of 90 expected
    shared = positions(Sample(longest=30, test_length=10, per_batch=True), rows=300)
    assert shared.shape == (1, 9) and shared.diff().min() >= 1


def test_padding_takes_no_position_away() -> None:
    """The mean of the first of four of 0 .. 99 is near 20, of the first of forty near 2."""
    torch.manual_seed(0)
    drawn = positions(Sample(longest=100, test_length=50), n=40, rows=400, lengths=[4, 40] * 200)
    assert drawn[0::2, :4].diff().min() >= 1 and drawn.max() < 100
    assert 17 < drawn[0::2, 0].float().mean() < 22 and drawn[1::2, 0].float().mean() < 3


@pytest.mark.parametrize("test", ["even", "sample"])
def test_evaluation_samples_are_always_the_same(test: Any) -> None:
    p = Sample(longest=100, test=test, test_length=20)
    at = with_positions(pass_over(20), p).queries[0]
    state = torch.random.get_rng_state()
    assert at.diff().min() >= 1 and at.max() < 100
    assert torch.equal(torch.random.get_rng_state(), state)  # draws nothing from the global stream
    torch.manual_seed(5)
    for t in range(20):
        one, keys = torch.tensor([[t]]), torch.arange(t + 1)[None]
        step = with_positions(Context("decoder", one, keys, one), p)
        assert step.queries.item() == at[t] and torch.equal(step.keys[0], at[: t + 1])
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


def test_skips_and_borders_are_uniform_and_stay_within_the_longest() -> None:
    torch.manual_seed(0)
    drawn = positions(PoSE(longest=20), n=9, rows=6000)
    assert drawn[:, 0].eq(0).all() and drawn.diff().min() == 1 and drawn.max() == 19
    skips = torch.bincount(drawn[:, -1] - 8)
    assert len(skips) == 12 and skips.min() > 420 and skips.max() < 580  # of 500 expected
    steps = drawn.diff()
    skipped = steps.amax(1) > 1
    borders = torch.bincount(steps[skipped].argmax(1))
    assert len(borders) == 8 and borders.min() > 600 and borders.max() < 780  # of 687
    assert (steps > 1).sum(1).max() == 1
    assert torch.equal(with_positions(pass_over(25), PoSE(20)).keys[0], torch.arange(25))


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
    c = training(9)
    drawn = with_positions(c, p)
    assert drawn.queries is drawn.keys is drawn.new_keys
    assert with_positions(c, type(p)()) is drawn  # equal positions of another entry
    again = with_positions(training(9), p).queries
    assert not torch.equal(drawn.queries, again)
    assert not torch.equal(drawn.queries[0], drawn.queries[1])
    torch.manual_seed(3)
    assert torch.equal(with_positions(training(9), p).queries, drawn.queries)


def made(at: Any, name: str = "absolute", site: str = "encoder") -> Encoding:
    return create({name: {"at": at, "where": [site]}}, dims(site))[0]


def test_names_in_a_config() -> None:
    assert made({"shift": {"k": 7, "test": 7}}).positions == Shift(7, 7)
    assert made("sample").positions == Sample()
    assert made({"augment": {"center": True, "scale": 2}}).positions == Augment(5, 0.5, 2, True)


@pytest.mark.parametrize(
    "at, name, site, said",
    [
        ({"shift": {"k": 0}}, "absolute", "encoder", "at.shift.k=0: must be at least 1"),
        ({"shift": {"test": -1}}, "absolute", "encoder", "at.shift.test=-1"),
        ({"shift": {"kk": 1}}, "absolute", "encoder", "at.shift.kk: no such key"),
        ({"augment": {"scale": 0.5}}, "absolute", "encoder", "at.augment.scale=0.5: must be"),
        ({"augment": {"noise": -1}}, "absolute", "encoder", "at.augment.noise=-1"),
        ({"augment": {"shift": float("nan")}}, "absolute", "encoder", "at.augment.shift=nan"),
        ({"augment": {"center": True}}, "absolute", "decoder", "not for where=decoder"),
        ("augment", "learned", "encoder", "needs whole positions"),
        ("shift", "lstm", "encoder", "never looks at positions"),
        ("shift", "position_infused", "cross", "not for where=cross; give where"),
        (
            {"sample": {"test": "x"}},
            "absolute",
            "encoder",
            "at.sample.test=x: choose one of even, sample",
        ),
        (
            {"sample": {"longest": 9}},
            "absolute",
            "encoder",
            "test_length=512: must be at most longest=9",
        ),
    ],
)
def test_says_what_is_wrong(at: Any, name: str, site: str, said: str) -> None:
    with pytest.raises(ValueError) as e:
        made(at, name, site)
    assert said in str(e.value)
