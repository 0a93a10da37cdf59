"""What is lost is counted as said, chance plays a small part in it, and parts are told apart."""

import random
from collections.abc import Sequence

import pytest

from nmt.evaluation.lost import lost_text, parts_left_out, parts_of_lines
from nmt.evaluation.report import Report
from tests.evaluation.made_up import compare, score

FIRST = "The commission will present its report to the parliament before the end of this year."
SECOND = "Small farms in the mountains of Scotland lost a quarter of their sheep last winter."
FILLERS = ("an", "old", "man", "went", "quickly", "over", "green", "hill", "without", "water")
THIRD = "Nobody knows why Jupiter's yellow moons hum."


def poor(text: str, seed: int) -> str:
    """The text with more than two words in five lost or replaced, as by a poor translation."""
    draw = random.Random(seed)
    words = [w if draw.random() > 0.4 else draw.choice(FILLERS) for w in text.split()]
    return " ".join(w for w in words if draw.random() > 0.1)


def test_what_is_lost_is_pooled_over_lines() -> None:
    lost = lost_text(["abcdefgh", "", "ABCDEFG"])
    assert score(lost, ["abcdefg", "abcdef", "ABCDEFG"]) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    "hypothesis, left_out",
    [
        (FIRST, [False, True]),
        (f"{FIRST} {FIRST}", [False, True]),  # as long as the whole
        (f"{FIRST} {' '.join(FIRST.split()[-4:] * 4)}", [False, True]),
        (f"{FIRST} {SECOND}", [False, False]),
        (f"{SECOND} {FIRST}", [False, False]),  # order plays no part
        (SECOND, [True, False]),
        ("", [True, True]),
        (f"{FIRST} {' '.join(SECOND.split()[:8])}", [False, False]),  # half of the part is there
    ],
)
def test_parts_that_are_there_and_not(hypothesis: str, left_out: list[bool]) -> None:
    assert parts_left_out(hypothesis, [FIRST, SECOND]) == left_out
    assert parts_left_out(hypothesis, [FIRST, FIRST]) == [None, None]  # which cannot be told apart


def test_poor_translations_are_judged_by_what_they_lack() -> None:
    whole = [f"{poor(FIRST, n)} {poor(SECOND, n + 500)}" for n in range(200)]
    cut = [poor(FIRST, n) for n in range(200)]
    left_out = [
        [parts_left_out(line, [FIRST, SECOND])[1] for line in lines] for lines in (whole, cut)
    ]
    assert left_out[0].count(True) <= 10 and left_out[1].count(True) >= 190


def test_parts_by_hand() -> None:
    """Each n-gram of a part that no other has, looked for by plain loops."""
    parts = [[FIRST, SECOND, THIRD]]
    texts = ["".join(text.split()) for text in parts[0]]
    of_parts = parts_of_lines(parts)
    assert of_parts.counts

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
        (by_place,) = of_parts.counts([hypothesis])  # [place, columns]
        expected = counts([6], output)
        assert by_place[:, [0, 1, 4]].tolist() == [list(part) for part in expected]
        recalls = [arrived / total for arrived, total, _ in counts(range(1, 7), output)]
        left_out = [not recall or recall < max(recalls) / 3 for recall in recalls]
        assert by_place[:, 2].tolist() == left_out and by_place[:, 3].tolist() == [1, 1, 1]


def places(hypotheses: list[list[str]], parts: list[list[str]]) -> Report:
    references = [" ".join(sentences) for sentences in parts]
    return compare({"a": hypotheses}, references, parts=parts, metrics=["BLEU"], samples=50)


def test_places_are_apart_by_the_number_of_parts_and_means_over_runs() -> None:
    parts = [[FIRST], [FIRST, SECOND], [FIRST, SECOND], [FIRST, SECOND, THIRD]]
    references = [" ".join(sentences) for sentences in parts]
    cut = [FIRST, FIRST, f"{FIRST} {SECOND}", f"{FIRST} {SECOND} {SECOND}"]
    report = places([references, cut], parts)
    names = ["1 of 2", "2 of 2", "1 of 3", "2 of 3", "3 of 3"]
    groups = [group for group in report.tests[0].groups if " of " in group.name]
    assert [group.name for group in groups] == names
    assert [group.pairs for group in groups] == [2, 2, 1, 1, 1]

    def means(metric: str) -> list[float]:
        return [f.mean for name in names if (f := report.figure(metric, "a", name))]

    assert means("left out") == [0, 1 / 4, 0, 0, 1 / 2]
    assert means("arrived")[:4] == [1, pytest.approx(3 / 4), 1, 1]
    assert 1 / 2 <= means("arrived")[4] < 0.55
    surplus = means("surplus")
    assert surplus[3] == pytest.approx(1 / 2, abs=0.02) and surplus[0] == 0
    second = report.figure("arrived", "a", "2 of 2")
    assert second and (second.low, second.high) == (0, 1)  # 1 and 1/2 of two seeds
