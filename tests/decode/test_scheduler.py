"""By workers or alone: the same translations, in the same order, with the same words about them."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.grouping import by_length
from nmt.decode.notes import Notes
from nmt.decode.scheduler import batches_of, count_workers
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained
from nmt.system.pool import can_fork
from tests.decode.copying import ENDLESS, decode, model_of, trained

pytestmark = pytest.mark.skipif(not can_fork(), reason="forks are for Linux")

LINES = [
    *("w1 w2", "", "w3", "w4 w5 w6", f"{ENDLESS} w1", "w7", "w8 w9", "w1 w2 w3 w4 w5", "", "w6"),
    *(f"w{n} w{n + 1}" for n in range(9)),
]


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def outcome(
    some: Trained, workers: int, options: Any, n_best: int = 1, **more: Any
) -> tuple[list[list[Translation]], Notes]:
    notes = Notes()
    translator = Translator.of(some, options, workers=workers)
    return list(translator.translate(LINES, n_best, notes=notes, **more)), notes


@pytest.mark.parametrize(
    "changes",
    [
        {"window": 3, "batch_tokens": 8, "no_repeat_ngram": 1, "min_length_ratio": 0.5},
        {"method": "sample", "mbr": 4},
    ],
)
def test_hypotheses_and_scores_do_not_depend_on_workers(
    whole: Trained, changes: dict[str, Any]
) -> None:
    whole = whole._replace(facts={"longest_source": 2})
    brief = {"beam_size": 3, "max_length_ratio": 1.0, "max_length_offset": 3, "batch_tokens": 24}
    options = decode(**{**brief, **changes})
    prefixes = ["w9" if line and n % 3 == 2 else "" for n, line in enumerate(LINES)]
    more: dict[str, Any] = {"prefixes": prefixes, "first": 11}
    alone, notes = outcome(whole, 1, options, 3, **more)
    several, same = outcome(whole, 3, options, 3, **more, read_ahead="window" in changes)
    assert several == alone  # texts, scores, ids and ends, to the last bit
    assert same.counts == notes.counts
    assert notes.counts["long"][1] == 14 and notes.counts["cut"][0] > 3


def test_what_is_unusual_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    options, logged = decode(window=4, too_long="split"), []
    for workers in (1, 2):
        caplog.clear()
        some = trained(longest_source=3)
        some.model.source_limit = 5  # type: ignore[misc]
        outcome(some, workers, options, read_ahead=True)
        logged.append([record.getMessage() for record in caplog.records])
    assert logged[0] == logged[1]
    assert [message[:30] for message in logged[0]] == [
        "sources of more than 4 pieces ",
        "translations cut at the limit ",
    ]
    assert "first: line 8" in logged[0][0] and "1 (first: line 5" in logged[0][1]


def reader(read: list[int], count: int = 40) -> Iterator[str]:
    for number in range(1, count + 1):
        read[0] = number
        yield f"w{number % 40}"


def test_without_reading_ahead_a_window_is_given_back_before_the_next_is_read() -> None:
    read = [0]
    some = Translator.of(trained(), decode(window=3), workers=2).translate(reader(read, 7))
    assert [read[0] for _ in some] == [3, 3, 3, 6, 6, 6, 7]


@pytest.mark.parametrize(("workers", "most"), [(2, 4), (1, 1)])
def test_few_windows_are_under_way(workers: int, most: int) -> None:
    """As many as keep the workers at work, whatever the length of the text; alone, none."""
    read = [0]
    some = Translator.of(trained(), decode(window=2), workers=workers)
    ahead = [
        (read[0] + 1) // 2 - number // 2  # windows read, but not given back
        for number, _ in enumerate(some.translate(reader(read), read_ahead=True))
    ]
    assert max(ahead) <= most
    assert workers == 1 or min(ahead[:-8]) >= 2


def test_lines_before_an_error_are_given_back() -> None:
    """Of reading, and of a batch; as by one process."""

    def broken() -> Iterator[str]:
        yield from LINES[:10]
        raise UserError("text: damaged", Exit.DATA)

    for workers in (1, 2):
        found = list[str]()
        some = Translator.of(trained(), decode(window=3), workers=workers)
        with pytest.raises(UserError, match="damaged"):
            for best, *_ in some.translate(broken(), read_ahead=True):
                found.append(best.text)
        assert len(found) == 9


def test_lines_before_a_lost_batch_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Translator.of(trained(), decode(window=3), workers=2)
    model, word = model_of(some), trained().source.ids("w7")[0]
    start = model.start

    def full(source: Any, *rest: Any) -> Any:
        if (source == word).any():
            raise torch.OutOfMemoryError
        return start(source, *rest)

    monkeypatch.setattr(model, "start", full)
    found = list[str]()
    with pytest.raises(UserError, match=r"^a batch .*: too much") as error:
        for best, *_ in some.translate(LINES, read_ahead=True):
            found.append(best.text)
    assert error.value.code == Exit.NO_MEMORY
    assert found == LINES[:3]


def test_workers_end_where_a_reader_leaves() -> None:
    lines = Translator.of(trained(), decode(window=3), workers=2).translate(LINES)
    next(lines)
    assert len(multiprocessing.active_children()) == 2
    lines.close()
    assert not multiprocessing.active_children()


lengths_of_sentences = st.lists(st.integers(1, 60), max_size=80)


@given(lengths_of_sentences, st.integers(1, 300), st.integers(1, 40), st.integers(1, 9))
def test_batches_hold_each_place_once_and_are_even(
    lengths: list[int], budget: int, least: int, shares: int
) -> None:
    groups = batches_of(lengths, budget, least, shares)
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    sizes = [len(group) * max(lengths[i] for i in group) for group in groups]
    assert all(size <= budget or len(g) == 1 for size, g in zip(sizes, groups, strict=True))
    tops = [lengths[group[0]] for group in groups]
    assert tops == sorted(tops, reverse=True)  # the longest first
    if shares == 1:
        assert groups == by_length(lengths, budget)


@pytest.mark.parametrize(
    ("batches", "most", "gigabytes", "expected"),
    [
        (2, 4, 64, 1),  # a small text
        (3, 4, 64, 3),
        (9, 4, 64, 4),
        (9, 1, 64, 1),  # one thread, or a GPU
        (90, 64, 16, 16),  # a gigabyte for each
    ],
)
def test_as_many_workers_as_pay(batches: int, most: int, gigabytes: int, expected: int) -> None:
    assert count_workers(batches, most, gigabytes * 2**30) == expected


def test_a_daemon_searches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker of multiprocessing.Pool does, which may have no children."""
    alone = Translator.of(trained(), decode(window=4)).texts(LINES)
    current: Any = multiprocessing.current_process()
    monkeypatch.setitem(current._config, "daemon", True)
    assert Translator.of(trained(), decode(window=4), workers=2).texts(LINES) == alone


def test_a_gpu_searches_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Translator.of(trained(), decode(), workers=2)
    engine: Any = some.engine
    engine.device = torch.device("meta")
    assert engine.most_workers == 1
    with pytest.raises(UserError, match=r"^2 workers: meta searches for one process; take 1"):
        some.texts(["w1"])
