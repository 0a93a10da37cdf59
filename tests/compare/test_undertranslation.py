"""Repetitions are counted as said, and halves that were dropped are told from poor ones."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from nmt.compare.report import PartShares, Share
from nmt.compare.scoring import Bootstrap, TranslatedTest, mean_of_known
from nmt.compare.undertranslation import by_place, dropped_halves, part_counts, repetition

FIRST = "The commission will present its report to the parliament before the end of this year."
SECOND = "Small farms in the mountains of Scotland lost a quarter of their sheep last winter."
FILLERS = ("an", "old", "man", "went", "quickly", "over", "green", "hill", "without", "water")
PARTS = [(["x", "y"], [FIRST, SECOND])]


def poor(text: str, seed: int) -> str:
    """The text with more than two words in five lost or replaced, as by a poor translation."""
    draw = random.Random(seed)
    words = [w if draw.random() > 0.4 else draw.choice(FILLERS) for w in text.split()]
    return " ".join(w for w in words if draw.random() > 0.1)


def dropped_half(hypotheses: list[str], parts: Any) -> float | None:
    return mean_of_known(dropped_halves(hypotheses, parts))


def test_repetitions_by_hand() -> None:
    assert repetition(["a b c d a b c d"]) == pytest.approx(1 / 5)  # abcd again, of 5
    assert repetition(["a a a a a a"]) == pytest.approx(2 / 3)
    assert repetition(["a b c d e f", "a b c d e f"]) == 0  # lines are apart
    assert repetition(["a b c d a b c d", "a b c d e", "x y"]) == pytest.approx(1 / 7)


@pytest.mark.parametrize("lines", [[], [""], ["one two three"]])
def test_no_n_grams_no_share(lines: list[str]) -> None:
    assert repetition(lines) is None


@pytest.mark.parametrize(
    "hypothesis, dropped",
    [
        (FIRST, 1.0),
        (f"{FIRST} {FIRST}", 1.0),  # as long as the whole
        (f"{FIRST} {' '.join(FIRST.split()[-4:] * 4)}", 1.0),
        (f"{FIRST} {SECOND}", 0.0),
        (f"{SECOND} {FIRST}", 0.0),  # order plays no part
        (SECOND, 0.0),
        ("", 1.0),
        (f"{FIRST} {' '.join(SECOND.split()[:8])}", 0.0),  # half of the half is there
    ],
)
def test_halves_that_are_there_and_not(hypothesis: str, dropped: float) -> None:
    assert dropped_half([hypothesis], PARTS) == dropped


def test_poor_translations_are_judged_by_what_they_lack() -> None:
    whole = [f"{poor(FIRST, n)} {poor(SECOND, n + 500)}" for n in range(200)]
    cut = [poor(FIRST, n) for n in range(200)]
    found = dropped_half(whole, PARTS * 200), dropped_half(cut, PARTS * 200)
    assert found[0] is not None and found[0] <= 0.05
    assert found[1] is not None and found[1] >= 0.95


def test_the_last_half_of_several_sentences() -> None:
    a, b, c = FIRST, SECOND, "Nobody knows why Jupiter's yellow moons hum."
    three: Sequence[tuple[list[str], list[str]]] = [(["x", "y", "z"], [a, b, c])]
    assert dropped_half([f"{a} {b}"], three) == 1  # the last one of three
    assert dropped_half([f"{a} {c}"], three) == 0
    four = [(["w"] * 4, [a, a[::-1], b, c])]
    assert dropped_half([f"{a} {a[::-1]} {b}"], four) == 0  # half of the second half is there
    assert dropped_half([f"{a} {a[::-1]}"], four) == 1


def test_lines_that_cannot_tell_are_left_out() -> None:
    assert dropped_half([], []) is None
    assert dropped_half([FIRST], [(["x"], [FIRST])]) is None
    assert dropped_half([FIRST], [(["x", "y"], [FIRST, FIRST])]) is None
    assert dropped_half([FIRST, FIRST], [(["x"], [FIRST]), *PARTS]) == 1
    assert dropped_half([FIRST, f"{FIRST} {SECOND}"], PARTS * 2) == 0.5


def test_lines_and_parts_are_parallel() -> None:
    with pytest.raises(ValueError, match="zip"):
        dropped_half([FIRST], [])


def test_parts_by_hand() -> None:
    """Each n-gram of a part that no other has, looked for by plain loops."""
    parts = [(["x"] * 3, [FIRST, SECOND, "Nobody knows why Jupiter's yellow moons hum."])]
    texts = ["".join(text.split()) for text in parts[0][1]]

    def counts(orders: Sequence[int], output: str) -> list[tuple[int, int, int]]:
        """By part: how many arrived, how many there are, how many are too many."""
        grams = [[t[i : i + n] for n in orders for i in range(len(t) - n + 1)] for t in texts]
        numbers = []
        for place, of_part in enumerate(grams):
            others = {gram for at, other in enumerate(grams) if at != place for gram in other}
            alone = [gram for gram in of_part if gram not in others]
            seen = {g: sum(output.startswith(g, i) for i in range(len(output))) for g in alone}
            arrived = sum(min(alone.count(g), n) for g, n in seen.items())
            surplus = sum(max(0, n - alone.count(g)) for g, n in seen.items())
            numbers.append((arrived, len(alone), surplus))
        return numbers

    for hypothesis in ("", FIRST, f"{SECOND} {SECOND} {FIRST[:40]}", "Something else.", "0 0"):
        output = "".join(hypothesis.split())
        (counted,) = part_counts([hypothesis], parts)
        assert [part[:3] for part in counted] == counts([6], output)
        recalls = [arrived / total for arrived, total, _ in counts(range(1, 7), output)]
        left_out = [not recall or recall < max(recalls) / 3 for recall in recalls]
        assert [part.left_out for part in counted] == left_out
        if not output.strip("0"):
            assert all(left_out)
    assert part_counts(["x"], [([], [])]) == [[]]
    assert part_counts(["x"], [(["s", "s"], ["", FIRST])])[0][0] == (0, 0, 0, None)


def test_places_are_apart_by_the_number_of_parts_and_means_over_runs() -> None:
    three = "Nobody knows why Jupiter's yellow moons hum."
    parts = [
        (["x"], [FIRST]),
        *[(["x", "y"], [FIRST, SECOND])] * 2,
        (["x"] * 3, [FIRST, SECOND, three]),
    ]
    references = [" ".join(sentences) for _, sentences in parts]
    cut = [FIRST, FIRST, f"{FIRST} {SECOND}", f"{FIRST} {SECOND} {SECOND}"]
    test = TranslatedTest(references, [[references, cut], []], parts=parts)
    rows = by_place(test, Bootstrap([25], samples=50))
    assert [row.name for row in rows] == ["1 of 2", "2 of 2", "1 of 3", "2 of 3", "3 of 3"]
    assert [row.pairs for row in rows] == [2, 2, 1, 1, 1] and all(row.few for row in rows)
    found = [row.cells[0] for row in rows]
    assert [cell.omitted for cell in found] == [0, 1 / 4, 0, 0, 1 / 2]
    shares = [cell.arrived.mean for cell in found if cell.arrived]
    assert shares[:4] == [1, pytest.approx(3 / 4), 1, 1] and 1 / 2 <= shares[4] < 0.55
    assert found[3].repeated == pytest.approx(1 / 2, abs=0.02) and found[0].repeated == 0
    second = found[1].arrived
    assert second and (second.low, second.high) == (0, 1)  # 1 and 1/2 of two seeds
    assert {row.cells[1] for row in rows} == {PartShares(None, None, None)}
    assert by_place(test._replace(parts=None), Bootstrap([25])) == []


def test_draws_of_lines_without_n_grams_do_not_widen_an_interval() -> None:
    """Of two lines one is too short for any: half of the draws have it alone, or do not."""
    parts = [(["x", "y"], [FIRST, SECOND]), (["x", "y"], ["Yes.", "No."])]
    test = TranslatedTest([f"{FIRST} {SECOND}", "Yes. No."], [[[FIRST, "No."]]], parts=parts)
    first, second = (row.cells[0] for row in by_place(test, Bootstrap([25], samples=50)))
    assert first.arrived == Share(1.0, 1.0, 1.0)
    assert second.arrived and second.arrived.low == second.arrived.mean == second.arrived.high < 0.1
    assert second.repeated == 0
