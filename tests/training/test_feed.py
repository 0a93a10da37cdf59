"""Which batches an update takes on each rank, what is drawn for them, where checkpoints lie."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.batches import Batches
from nmt.corpus.prepare import Prepared
from nmt.training.distributed import World
from nmt.training.feed import Feed
from nmt.training.schedule import DataCursor, is_over, last_step
from tests.training import tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return tiny.prepared(tmp_path_factory.mktemp("feed"))


def feed_of(data: Prepared, rank: int = 0, ranks: int = 1, **changes: Any) -> Feed:
    options = tiny.settings(trainer__accumulate=4, **changes).trainer
    batches = Batches(data.train, options.batch_tokens, options.batch_count, 1)
    world = World()
    world.rank, world.size = rank, ranks
    return Feed(batches, options, world, torch.device("cpu"))


def test_every_batch_of_an_update_has_a_position_of_its_own(data: Prepared) -> None:
    whole, ranks = feed_of(data), [feed_of(data, rank, 2) for rank in (0, 1)]
    cursor = DataCursor()
    made = whole.device_batches(cursor, 1)
    assert [batch.position for batch in made] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    of_ranks = [batch for feed in ranks for batch in feed.device_batches(cursor, 1)]
    assert sorted(tuple(b.position) for b in of_ranks) == [tuple(b.position) for b in made]
    for batch in of_ranks:
        assert torch.equal(batch.source, made[batch.position[0]].source)


def test_a_rank_without_a_batch_counts_none(data: Prepared) -> None:
    feeds = [feed_of(data, rank, 2) for rank in (0, 1)]
    last = DataCursor(0, feeds[0].batches.size(0) - 1)
    mine, none = (feed.device_batches(last, 1) for feed in feeds)
    assert [batch.counted for batch in (*mine, *none)] == [True, False]
    assert torch.equal(mine[0].source, none[0].source)


counts = st.integers(1, 40)
TRAINER = tiny.settings().trainer


def feed_of_sizes(sizes: list[int], accumulate: int, checkpoints: int = 8) -> Feed:
    """A feed of epochs with so many batches."""
    batches: Any = SimpleNamespace(size=lambda epoch: sizes[epoch])
    options = replace(TRAINER, accumulate=accumulate, checkpoints_per_epoch=checkpoints)
    return Feed(batches, options, World(), torch.device("cpu"))


@given(st.lists(counts, min_size=1, max_size=4), st.integers(1, 7))
def test_each_epoch_takes_every_batch_once(sizes: list[int], accumulate: int) -> None:
    """Epochs may differ in their number of batches."""
    cursor, taken, updates = DataCursor(), dict[int, list[int]](), 0
    trainer = replace(TRAINER, max_epochs=len(sizes), max_steps=None)
    feed = feed_of_sizes(sizes, accumulate)
    while not is_over(updates, cursor, trainer):
        assert 1 <= len(feed.batch_numbers(cursor)) <= accumulate
        taken.setdefault(cursor.epoch, []).extend(feed.batch_numbers(cursor))
        cursor, updates = feed.after(cursor), updates + 1
    assert taken == {epoch: list(range(size)) for epoch, size in enumerate(sizes)}
    assert updates == sum(map(feed.updates, range(len(sizes))))


@given(counts, st.integers(1, 7), st.integers(1, 12))
def test_checkpoints_are_evenly_spaced_and_end_the_epoch(
    size: int, accumulate: int, checkpoints: int
) -> None:
    feed = feed_of_sizes([size], accumulate, checkpoints)
    firsts = range(0, size, accumulate)
    due = [n for n, first in enumerate(firsts, start=1) if feed.is_due(DataCursor(0, first), n)]
    assert len(due) == min(feed.updates(0), checkpoints) and due[-1] == feed.updates(0)
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert max(gaps) - min(gaps) <= 1


def test_the_first_limit_ends_the_run() -> None:
    both = replace(TRAINER, max_epochs=2, max_steps=5)
    assert not is_over(4, DataCursor(1, 3), both)
    assert is_over(5, DataCursor(1, 3), both) and is_over(4, DataCursor(2), both)
    endless = replace(TRAINER, max_epochs=None, max_steps=50)
    assert not is_over(49, DataCursor(9), endless) and is_over(50, DataCursor(0, 3), endless)
    assert [last_step(4, trainer) for trainer in (both, endless)] == [5, 50]
    assert last_step(2, both) == 4
