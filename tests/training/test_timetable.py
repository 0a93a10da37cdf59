"""Which batches a step takes, and where checkpoints lie."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nmt.training.timetable import Timetable, timetable
from tests.training import tiny

counts = st.integers(1, 40)


TRAINER = tiny.settings().trainer


def plan(
    batches: int,
    accumulate: int = 1,
    checkpoints: int = 8,
    epochs: int | None = None,
    steps: int | None = None,
) -> Timetable:
    trainer = replace(
        TRAINER,
        accumulate=accumulate,
        checkpoints_per_epoch=checkpoints,
        max_epochs=epochs,
        max_steps=steps,
    )
    return timetable(batches, trainer)


@given(counts, st.integers(1, 7))
def test_an_epoch_takes_every_batch_once(batches: int, accumulate: int) -> None:
    table = plan(batches, accumulate, epochs=3)
    taken: dict[int, list[int]] = {}
    for step in range(1, table.last + 1):
        assert 1 <= len(table.share(step)) <= accumulate
        taken.setdefault(table.epoch(step), []).extend(table.share(step))
    assert taken == {epoch: list(range(batches)) for epoch in (1, 2, 3)}


@given(counts, st.integers(1, 12))
def test_checkpoints_are_evenly_spaced_and_end_the_epoch(updates: int, checkpoints: int) -> None:
    table = plan(updates, 1, checkpoints, epochs=2)
    due = [step for step in range(1, 2 * updates + 1) if table.due(step)]
    number = min(updates, checkpoints)
    assert len(due) == 2 * number and due[number - 1] == updates
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert max(gaps) - min(gaps) <= 1


def test_the_first_limit_ends_the_run() -> None:
    assert plan(10, 3, epochs=2).last == 8
    assert plan(10, 3, epochs=2, steps=5).last == 5
    assert plan(10, 3, epochs=2, steps=50).last == 8
    assert plan(10, 3, steps=50).last == 50
