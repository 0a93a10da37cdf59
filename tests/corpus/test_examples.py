"""Consecutive lines become one example: each pair once, within limits and borders."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.batches import Batches
from nmt.corpus.examples import Examples, Joining, draw_examples, find_longest
from nmt.corpus.pairs import Corpora, Pairs, read_pairs, write_pairs
from nmt.errors import UserError
from nmt.text.vocab import BOS, EOS, PAD

JOINING = Joining(max_lines=3, share=0.6, max_length=30, within=None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return stored(tmp_path_factory.mktemp("joined") / "store", 400)


def stored(path: Path, pairs: int) -> Pairs:
    """Pairs of 1 to 12 pieces; line 21 and its like were dropped; documents change at 50s."""
    random = np.random.default_rng(0)
    rows = dict[str, list[list[int]]](source=[], target=[])
    for _ in range(pairs):
        for of_side in rows.values():
            of_side.append([*random.integers(4, 60, random.integers(1, 13)).tolist(), EOS])
    lines, per = np.arange(1, pairs + 1), {"document": "sentence"}
    columns = {"document": (lines // 50).astype(np.int32)}
    lines = lines + (lines > 20) + (lines > 77)
    whole = Pairs.of_rows(lines, rows, np.dtype("<u2"), per, columns)
    write_pairs(path, [whole], np.dtype("<u2"), per)
    return read_pairs(path)


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
    store: Pairs, most: int, share: float, length: int, within: str | None, epoch: int
) -> None:
    examples = draw_examples(store, Joining(most, share, length, within), (), 1, epoch)
    assert [pair for row in rows(examples) for pair in row] == list(range(len(store)))
    for row, source, target in zip(rows(examples), *examples.lengths.values(), strict=True):
        assert source == sum(store.lengths["source"][row])
        assert target == sum(store.lengths["target"][row])
        if len(row) == 1:
            continue
        assert len(row) <= most and max(source, target) <= length
        assert store.lines[row[-1]] - store.lines[row[0]] == len(row) - 1
        assert within is None or len(set(store.columns[within][row])) == 1


def test_shares_and_numbers_of_lines_are_those_asked_for(tmp_path: Path) -> None:
    large = stored(tmp_path / "large", 20_000)
    counts = draw_examples(large, Joining(4, 0.4, 1000, None), (), 1, 0).counts
    shares = np.bincount(counts, minlength=5)[1:] / len(counts)
    assert np.allclose(shares, [0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3], atol=0.02)
    assert draw_examples(large, Joining(2, 1.0, 1000, None), (), 1, 0).counts[:-1].min() >= 1
    assert (draw_examples(large, Joining(2, 0.0, 1000, None), (), 1, 0).counts == 1).all()


def test_the_longest_example_is_known_beforehand(store: Pairs) -> None:
    most = find_longest(store, JOINING)
    seen = [draw_examples(store, JOINING, (), 1, epoch) for epoch in range(12)]
    assert most["source"] >= max(int(e.lengths["source"].max()) for e in seen) > 12
    assert most["source"] <= JOINING.max_length and most["target"] <= JOINING.max_length
    pairs = range(len(store) - 2)
    exact = max(
        int(store.lengths["source"][i : i + n].sum())
        for i in pairs
        for n in (1, 2, 3)
        if store.lines[i + n - 1] - store.lines[i] == n - 1
        and store.lengths["source"][i : i + n].sum() <= 30
        and store.lengths["target"][i : i + n].sum() <= 30
    )
    assert most["source"] == exact


def test_batches_hold_the_ids_of_the_parts_and_one_eos(store: Pairs) -> None:
    batches = Batches(store, 200, "max", 1, JOINING)
    seen: list[int] = []
    several = 0
    for number in range(batches.size(0)):
        (batch,), plan = batches.batch(0, number), batches.plan(0)
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


def test_joined_batches_are_the_same_on_every_machine(store: Pairs) -> None:
    # pinned: a change here changes every training run with data.join, and no old one can resume
    digest, batches = hashlib.sha256(), Batches(store, 200, "max", 1, JOINING)
    for epoch in (0, 3):
        for number in range(batches.size(epoch)):
            (batch,) = batches.batch(epoch, number)
            for ids in (batch.source, batch.target):
                digest.update(repr((*ids.shape, ids.tolist(), batch.lines)).encode())
    assert (batches.size(0), digest.hexdigest()[:16]) == (19, "30fc9308d53609b9")


def test_all_epochs_keep_the_budget_and_each_has_batches_of_its_own(store: Pairs) -> None:
    for budget in (30, 200):
        batches = Batches(store, budget, "max", 1, JOINING)
        for epoch in range(6):
            plan = batches.plan(epoch)
            assert plan.sizes.min() >= 1 and plan.sizes.sum() == len(plan.order)
            widths = np.maximum(*plan.examples.lengths.values())[plan.order] + 1
            for start, size in zip(plan.starts, plan.sizes, strict=True):
                assert size == 1 or widths[start : start + size].max() * size <= budget
    assert len({Batches(store, 30, "max", 1, JOINING).size(epoch) for epoch in range(12)}) > 1


def test_weights_repeat_the_examples_of_a_corpus_on_average(tmp_path: Path) -> None:
    large = stored(tmp_path / "large", 20_000)
    large.corpora = Corpora(["a", "b", "c"], [1, 5001, 12_001], [False] * 3)
    first = [draw_examples(large, None, [2.3, 0.25, 1], 1, epoch).first for epoch in (0, 1, 0)]
    assert (first[0] == first[2]).all() and len(first[0]) != len(first[1])
    times = np.bincount(first[0], minlength=len(large))
    kinds = large.corpus_of(np.arange(len(large)))
    assert [sorted({*times[kinds == k].tolist()}) for k in range(3)] == [[2, 3], [0, 1], [1]]
    assert times[kinds == 0].mean() == pytest.approx(2.3, abs=0.03)
    assert times[kinds == 1].mean() == pytest.approx(0.25, abs=0.03)


def test_an_epoch_without_pairs_is_refused(tmp_path: Path) -> None:
    small = stored(tmp_path / "small", 40)
    small.corpora = Corpora(["a"], [1], [False])
    with pytest.raises(UserError, match="raise a weight"):
        Batches(small, 30, "max", 1, weights=[1e-6]).size(0)
