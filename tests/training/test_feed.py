"""Each rank gets its batches of an update, with places of their own for what is drawn."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from nmt.corpus.batches import Batches
from nmt.corpus.prepare import Prepared
from nmt.training.corpus import leave_out_long
from nmt.training.distributed import World
from nmt.training.feed import AHEAD, Feed
from nmt.training.schedule import DataPlace
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
    place = DataPlace()
    made = whole.device_batches(place, 1)
    assert [batch.position for batch in made] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    of_ranks = [batch for feed in ranks for batch in feed.device_batches(place, 1)]
    assert {b.position for b in of_ranks} == {b.position for b in made}
    for batch in of_ranks:
        assert torch.equal(batch.source, made[batch.position[0]].source)


def test_a_rank_without_a_batch_counts_none(data: Prepared) -> None:
    feeds = [feed_of(data, rank, 2) for rank in (0, 1)]
    last = DataPlace(0, feeds[0].timetable(0).batches - 1)
    mine, none = (feed.device_batches(last, 1) for feed in feeds)
    assert [batch.counted for batch in (*mine, *none)] == [True, False]
    assert torch.equal(mine[0].source, none[0].source)


def test_workers_begin_no_update_that_is_never_made(data: Prepared) -> None:
    feed, begun = feed_of(data, trainer__max_steps=3), list[DataPlace]()

    class Watched(Batches):
        def begin(self, epoch: int, indices: Any) -> None:
            begun.append(DataPlace(epoch, next(iter(indices))))

    feed.batches.__class__ = Watched
    feed.batches.workers = cast(Any, type("Workers", (), {"count": 2}))
    place, after = DataPlace(), feed.timetable(0).after
    following = [after(place), after(after(place))]
    for step, expected in ((0, following), (1, following[:1]), (2, [])):
        begun.clear()
        feed.device_batches(place, step)
        assert begun == expected and AHEAD > 2


def test_development_pairs_as_long_as_training_pairs_may_be_stay(
    data: Prepared, tmp_path: Path
) -> None:
    options = tiny.settings().data
    lengths = [max(*of_pair) for of_pair in zip(*data.dev.lengths.values(), strict=True)]
    options.max_length = most = sorted(lengths)[len(lengths) // 2]
    kept = leave_out_long(data.dev, options)
    assert kept.lines.tolist() == [
        line for line, n in zip(data.dev.lines.tolist(), lengths, strict=True) if n <= most
    ]
    assert most in [max(*p) for p in zip(*kept.lengths.values(), strict=True)]
