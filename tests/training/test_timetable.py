"""Which batches an update takes, and where checkpoints lie."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.prepare import Prepared
from nmt.training.schedule import DataPlace, Timetable, is_over, last_step
from tests.training import tiny

counts = st.integers(1, 40)
TRAINER = tiny.settings().trainer


@given(st.lists(counts, min_size=1, max_size=4), st.integers(1, 7))
def test_each_epoch_takes_every_batch_once(sizes: list[int], accumulate: int) -> None:
    """Epochs may differ in their number of batches."""
    place, taken, updates = DataPlace(), dict[int, list[int]](), 0
    trainer = replace(TRAINER, max_epochs=len(sizes), max_steps=None)
    while not is_over(updates, place, trainer):
        table = Timetable(sizes[place.epoch], accumulate, 8)
        assert 1 <= len(table.share(place)) <= accumulate
        taken.setdefault(place.epoch, []).extend(table.share(place))
        place, updates = table.after(place), updates + 1
    assert taken == {epoch: list(range(size)) for epoch, size in enumerate(sizes)}
    assert updates == sum(Timetable(size, accumulate, 8).updates for size in sizes)


@given(counts, st.integers(1, 7), st.integers(1, 12))
def test_checkpoints_are_evenly_spaced_and_end_the_epoch(
    batches: int, accumulate: int, checkpoints: int
) -> None:
    table = Timetable(batches, accumulate, checkpoints)
    firsts = range(0, batches, accumulate)
    due = [n for n, first in enumerate(firsts, start=1) if table.is_due(DataPlace(3, first))]
    assert len(due) == min(table.updates, checkpoints) and due[-1] == table.updates
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert max(gaps) - min(gaps) <= 1


def test_checkpoints_may_be_so_many_updates_apart(data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, trainer__checkpoint_every=5)  # an epoch has 4
    assert [line["step"] for line in tiny.lines(tmp_path / "run", "dev")] == [5, 10, 12]


def test_the_first_limit_ends_the_run() -> None:
    both = replace(TRAINER, max_epochs=2, max_steps=5)
    assert not is_over(4, DataPlace(1, 3), both)
    assert is_over(5, DataPlace(1, 3), both) and is_over(4, DataPlace(2), both)
    endless = replace(TRAINER, max_epochs=None, max_steps=50)
    assert not is_over(49, DataPlace(9), endless) and is_over(50, DataPlace(0, 3), endless)
    assert [last_step(4, trainer) for trainer in (both, endless)] == [5, 50]
    assert last_step(2, both) == 4
