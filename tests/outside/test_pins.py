"""What the pins call a difference."""

import numpy as np
import pytest

from tests.outside import gates, pins
from tests.outside.checkouts import PINNED, _move, _rename, processor

RECORD = {
    "everywhere": {"texts": ["a", "b"]},
    "here": {processor(): {"BLEU": 30.0, "calls": 100.0}},
}


def differences(same: object, texts: list[str], **here: float) -> list[str]:
    gate = pins.Recorded("", gates.measure_costs, same)  # type: ignore[arg-type]
    return pins._differences(gate, RECORD, gates.Values({"texts": texts}, here))


def test_what_is_recorded_must_be_the_same_and_nothing_may_be_missing() -> None:
    assert differences(pins.is_equal, ["a", "b"], BLEU=30.0, calls=100.0) == []
    (line,) = differences(pins.is_equal, ["a", "c"], BLEU=30.0, calls=100.0)
    assert line == "texts, 2: was 'b', is 'c'"
    assert len(differences(pins.is_equal, ["a"], BLEU=30.0, calls=99.0)) == 2
    assert len(differences(pins.is_equal, ["a", "b", "c"], BLEU=30.0, calls=100.0, more=1)) == 2


def test_figures_may_round_and_costs_may_fall() -> None:
    assert pins.is_near(30.0, 30.0 + 1e-10)
    assert not pins.is_near(30.0, 30.0 + 1e-8)
    assert pins.is_near(pins.ABSENT, 30.0) and pins.is_near(None, None)
    wrong = ((30.0, None), (None, 30.0), (30.0, pins.ABSENT), (None, pins.ABSENT))
    assert not any(pins.is_near(was, now) for was, now in wrong)
    assert pins.is_no_more(100.0, 60.0)
    assert pins.is_no_more(100.0, 102.0)
    assert not pins.is_no_more(100.0, 103.0)
    assert not pins.is_no_more(100.0, None) and not pins.is_no_more(100.0, pins.ABSENT)


def test_each_recorded_gate_has_its_reference_commit() -> None:
    recorded = [name for name, gate in pins.GATES.items() if isinstance(gate, pins.Recorded)]
    assert recorded == ["G1", "G3", "G8", "G9"]
    assert all(pins._read(name)["commit"] for name in recorded)


def test_weights_get_the_names_of_a_checkout_or_are_refused() -> None:
    stored = {"a.weight": np.ones(2), "b": np.zeros(3)}
    assert _rename(stored, dict(stored)).keys() == stored.keys()
    with pytest.raises(AssertionError, match=r"a\.weight"):
        _rename(stored, {"b": np.zeros(3)})


def test_another_seed_is_the_same_on_every_machine() -> None:
    moved = _move(np.ones(4, np.float32))
    assert moved.tolist() == pytest.approx([0.97, 0.98, 0.99, 1.0])


def test_there_are_sixty_wrong_overrides() -> None:
    lines = (PINNED / "wrong_overrides.txt").read_text(encoding="utf-8").split("\n")
    assert len({line for line in lines if line}) == 60


def test_scores_may_be_apart_in_their_last_digit() -> None:
    same = pins.is_equal_but_for_rounding
    assert same("1\t2\t-160.4478\ta 3.5", "1\t2\t-160.4477\ta 3.5")
    assert not same("1\t2\t-160.4478\ta", "1\t2\t-160.4468\ta")
    assert not same("1\t2\t-160.4478\ta", "1\t2\t-160.4478\tb") and not same("a", None)
