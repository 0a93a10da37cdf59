"""Consecutive lines become one example: each pair once, within limits and borders."""

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.batches import Batches, _halved
from nmt.corpus.examples import Examples, Joining, joined, joining_of, longest
from nmt.corpus.pairs import PairStore, Writer
from nmt.text.vocab import BOS, EOS, PAD
from tests.composing import settings_of

JOINING = Joining(max_lines=3, share=0.6, max_length=30, within=None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return stored(tmp_path_factory.mktemp("joined") / "store", 400)


def stored(path: Path, pairs: int) -> PairStore:
    """Pairs of 1 to 12 pieces; line 21 and its like were dropped; documents change at 50s."""
    random = np.random.default_rng(0)
    with Writer(path, np.dtype("<u2"), {"document": "sentence"}) as writer:
        for _ in range(pairs):
            for side in ("source", "target"):
                ids = np.append(random.integers(4, 60, random.integers(1, 13)), EOS)
                writer.add(side, ids, np.array([len(ids)]))
        lines = np.arange(1, pairs + 1)
        writer.add_lines(lines + (lines > 20) + (lines > 77))
        writer.add_column("document", lines // 50)
    return PairStore(path)


def rows(examples: Examples) -> list[list[int]]:
    """The pairs of each example."""
    return [
        list(range(first, first + count))
        for first, count in zip(examples.first.tolist(), examples.counts.tolist(), strict=True)
    ]


@given(
    st.integers(2, 5), st.floats(0, 1), st.integers(1, 60), st.sampled_from([None, "document"]),
    st.integers(0, 9),
)  # fmt: skip
def test_each_pair_is_in_one_example_within_limits_and_borders(
    store: PairStore, most: int, share: float, length: int, within: str | None, epoch: int
) -> None:
    examples = joined(store, Joining(most, share, length, within), 1, epoch)
    assert [pair for row in rows(examples) for pair in row] == list(range(len(store)))
    for row, source, target in zip(rows(examples), examples.source, examples.target, strict=True):
        assert source == sum(store.source_lengths[row])
        assert target == sum(store.target_lengths[row])
        if len(row) == 1:
            continue
        assert len(row) <= most and max(source, target) <= length
        assert store.lines[row[-1]] - store.lines[row[0]] == len(row) - 1
        assert within is None or len(set(store.columns[within][row])) == 1


def test_the_settings_name_the_border() -> None:
    data = settings_of("data.join=3").data
    joining = joining_of(replace(data, join_within="document"))
    assert joining is not None and joining.within == "document"


def test_shares_and_numbers_of_lines_are_those_asked_for(tmp_path: Path) -> None:
    large = stored(tmp_path / "large", 20_000)
    counts = joined(large, Joining(4, 0.4, 1000, None), 1, 0).counts
    shares = np.bincount(counts, minlength=5)[1:] / len(counts)
    assert np.allclose(shares, [0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3], atol=0.02)
    assert joined(large, Joining(2, 1.0, 1000, None), 1, 0).counts[:-1].min() >= 1
    assert (joined(large, Joining(2, 0.0, 1000, None), 1, 0).counts == 1).all()


def test_the_draw_is_a_function_of_seed_and_epoch(store: PairStore) -> None:
    first = rows(joined(store, JOINING, 1, 3))
    np.random.seed(0)
    assert rows(joined(store, JOINING, 1, 3)) == first
    assert rows(joined(store, JOINING, 1, 4)) != first
    assert rows(joined(store, JOINING, 2, 3)) != first


def test_what_is_too_long_keeps_as_many_lines_as_fit(store: PairStore) -> None:
    """An example of three loses its last line, not all."""
    wide = joined(store, Joining(3, 1.0, 10**6, None), 1, 0)
    narrow = joined(store, Joining(3, 1.0, 20, None), 1, 0)
    threes = {row[0]: row for row in rows(wide) if len(row) == 3}
    starts = {row[0]: row for row in rows(narrow)}
    for first, row in threes.items():
        lengths = [max(store.source_lengths[row[:n]].sum(), store.target_lengths[row[:n]].sum())
                   for n in (2, 3)]  # fmt: skip
        if lengths[0] <= 20 < lengths[1] and store.lines[row[1]] - store.lines[row[0]] == 1:
            assert starts[first] == row[:2]


def test_the_longest_example_is_known_beforehand(store: PairStore) -> None:
    most = longest(store, JOINING)
    seen = [joined(store, JOINING, 1, epoch) for epoch in range(40)]
    assert most["source"] >= max(int(e.source.max()) for e in seen) > 12
    assert most["source"] <= JOINING.max_length and most["target"] <= JOINING.max_length
    pairs = range(len(store) - 2)
    exact = max(
        int(store.source_lengths[i : i + n].sum())
        for i in pairs
        for n in (1, 2, 3)
        if store.lines[i + n - 1] - store.lines[i] == n - 1
        and store.source_lengths[i : i + n].sum() <= 30
        and store.target_lengths[i : i + n].sum() <= 30
    )
    assert most["source"] == exact


def test_batches_hold_the_ids_of_the_parts_and_one_eos(store: PairStore) -> None:
    batches = Batches(store, 200, "max", 1, JOINING)
    seen: list[int] = []
    several = 0
    for number in range(len(batches)):
        batch, plan = batches.batch(0, number), batches._block(0)
        assert batch.source.shape[0] * max(batch.source.shape[1], batch.target.shape[1] - 1) <= 200
        start = plan.starts[number]
        for row, example in enumerate(plan.order[start : start + plan.sizes[number]]):
            pairs = rows(plan.examples)[example]
            seen += pairs
            several += len(pairs) > 1
            source = [i for pair in pairs for i in store.pair(pair)[0][:-1].tolist()] + [EOS]
            target = [i for pair in pairs for i in store.pair(pair)[1][:-1].tolist()] + [EOS]
            assert batch.source[row][batch.source[row] != PAD].tolist() == source
            assert batch.target[row][batch.target[row] != PAD].tolist() == [BOS, *target]
            assert batch.lines[row] == store.lines[pairs[0]]
    assert sorted(seen) == list(range(len(store))) and several > 50


def test_joined_batches_are_the_same_on_every_machine(store: PairStore) -> None:
    # pinned: a change here changes every training run with data.join, and no old one can resume
    digest, batches = hashlib.sha256(), Batches(store, 200, "max", 1, JOINING)
    for epoch, number in itertools.product((0, 3), range(len(batches))):
        batch = batches.batch(epoch, number)
        for ids in (batch.source, batch.target):
            digest.update(repr((*ids.shape, ids.tolist(), batch.lines)).encode())
    assert (len(batches), digest.hexdigest()[:16]) == (20, "30fca2bb71a68d32")


def test_all_epochs_have_as_many_batches_within_the_budget(store: PairStore) -> None:
    for budget in (30, 60, 200, 1000):
        batches = Batches(store, budget, "max", 1, JOINING)
        for epoch in range(12):
            plan = batches._block(epoch)
            assert len(plan.starts) == len(batches)
            assert plan.sizes.min() >= 1 and plan.sizes.sum() == len(plan.order)
            e = plan.examples
            widths = np.maximum(e.source, e.target)[plan.order] + 1
            for start, size in zip(plan.starts, plan.sizes, strict=True):
                assert size == 1 or widths[start : start + size].max() * size <= budget


def test_an_epoch_that_cannot_be_cut_so_has_the_examples_of_the_first(tmp_path: Path) -> None:
    """Where each example is a batch: numbers of examples differ, those of batches must not."""
    batches = Batches(stored(tmp_path / "few", 12), 1, "max", 1, JOINING)
    first = rows(batches._block(0).examples)
    assert len(batches) == len(first)
    others = [rows(batches._block(epoch).examples) for epoch in range(1, 12)]
    assert any(other == first for other in others)
    assert all(len(other) == len(first) for other in others)


def test_halving_takes_the_largest_first() -> None:
    starts = _halved(np.array([0, 2, 9]), 12, 6)
    assert np.diff(starts, append=12).tolist() == [2, 1, 2, 2, 2, 3]
