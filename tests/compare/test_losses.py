"""End sign, place and content are told apart where it is known which one it is."""

import random
from typing import Any

import pytest

from nmt.compare.losses import loss_parts
from nmt.compare.report import LossParts
from nmt.compare.scoring import Bootstrap, TranslatedTest

BOOTSTRAP = Bootstrap([25], samples=200, seed=3)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text(words: int, draw: random.Random) -> str:
    return " ".join("".join(draw.choices(LETTERS, k=5)) for _ in range(words))


@pytest.fixture
def test() -> TranslatedTest:
    """40 lines of 10 words, within the trained length, and 40 of 20, beyond it."""
    draw = random.Random(1)
    references = [text(10 + 10 * (n % 2), draw) for n in range(80)]
    lengths = [len(line.split()) for line in references]
    return TranslatedTest(references, [], lengths=lengths, longest_trained=[10])


def of_one(
    test: TranslatedTest, free: list[list[str]], forced: list[list[str]], longest: int | None = 10
) -> LossParts | None:
    """The parts of one system, by its runs."""
    of_test = test._replace(hypotheses=[free], longest_trained=[longest])
    (parts,) = loss_parts(of_test, [forced], BOOTSTRAP)
    return parts


def parts_of(test: TranslatedTest, free: Any, forced: Any) -> LossParts:
    """The parts where `free(words)` and `forced(words)` translate the words of long lines."""

    def translated(by: Any) -> list[str]:
        return [
            " ".join(by(line.split())) if length > 10 else line
            for line, length in zip(test.references, test.lengths or (), strict=True)
        ]

    parts = of_one(test, [translated(free)], [translated(forced)])
    assert parts is not None and parts.pairs == 40
    assert all(share.low <= share.mean <= share.high for share in shares_of(parts))
    total = parts.end.mean + parts.place.mean + parts.content.mean
    assert total == pytest.approx(parts.beyond.mean - parts.within.mean)
    return parts


def shares_of(parts: LossParts) -> list[Any]:
    return [parts.within, parts.beyond, parts.end, parts.place, parts.content]


def whole(words: list[str]) -> list[str]:
    return words


def test_what_comes_back_with_the_length_is_the_end_sign(test: TranslatedTest) -> None:
    parts = parts_of(test, lambda words: words[:10], whole)
    assert parts.end.mean == pytest.approx(0.5, abs=0.05)
    assert parts.place.mean == parts.content.mean == parts.within.mean == 0


def test_what_is_lost_behind_the_beginning_is_the_place(test: TranslatedTest) -> None:
    def fading(words: list[str]) -> list[str]:
        return [*words[:10], *(word[::-1] for word in words[10:])]

    parts = parts_of(test, fading, fading)
    assert parts.place.mean == pytest.approx(0.5, abs=0.06)
    assert parts.end.mean == 0 and parts.content.mean == pytest.approx(0, abs=0.01)


def test_what_is_lost_from_the_beginning_on_is_content(test: TranslatedTest) -> None:
    def poor(words: list[str]) -> list[str]:
        return [word[::-1] if n % 5 == 2 else word for n, word in enumerate(words)]

    parts = parts_of(test, poor, poor)
    assert parts.content.mean == pytest.approx(parts.beyond.mean, abs=0.05)
    assert parts.content.mean > 0.3
    assert abs(parts.place.mean) < 0.05 and parts.end.mean == 0


def test_shares_by_plain_loops_and_means_over_runs(test: TranslatedTest) -> None:
    """Free search gives half of the words in one run, all in the other; forced all, without one."""
    halves = [" ".join(line.split()[:5]) for line in test.references]
    without = [" ".join(line.split()[1:]) for line in test.references]
    parts = of_one(test, [halves, test.references], [without, without])
    assert parts is not None

    def lost(lines: list[int], hypotheses: list[str], beginning: bool) -> tuple[int, int]:
        total = absent = 0
        for i in lines:
            letters = test.references[i].replace(" ", "")
            cut = len(letters) // 2
            whole, start, rest = (
                [text[j : j + 6] for j in range(len(text) - 5)]
                for text in (letters, letters[:cut], letters[cut:])
            )
            assert not set(start) & set(rest)
            for gram in start if beginning else whole:
                total += 1
                absent += gram not in hypotheses[i].replace(" ", "")
        return absent, total

    near = [i for i, n in enumerate(test.lengths or ()) if n == 10]
    far = [i for i, n in enumerate(test.lengths or ()) if n == 20]
    shares = {}
    for name, lines, hypotheses, beginning in (
        ("within", near, halves, False), ("beyond", far, halves, False),
        ("forced", far, without, False), ("start", far, without, True),
    ):  # fmt: skip
        absent, total = lost(lines, hypotheses, beginning)
        shares[name] = absent / total
    assert parts.within.mean == pytest.approx(shares["within"] / 2)
    assert parts.beyond.mean == pytest.approx(shares["beyond"] / 2)
    assert parts.end.mean == pytest.approx(shares["beyond"] / 2 - shares["forced"])
    assert parts.place.mean == pytest.approx(shares["forced"] - shares["start"])
    assert parts.content.mean == pytest.approx(shares["start"] - shares["within"] / 2)


@pytest.mark.parametrize("longest", [9, 20])
def test_nothing_without_lines_on_both_sides(test: TranslatedTest, longest: int) -> None:
    runs = [test.references]
    assert of_one(test, runs, runs, longest) is None
    assert of_one(test, runs, runs, None) is None
    assert of_one(test, runs, []) is None


def test_nothing_without_any_n_gram() -> None:
    test = TranslatedTest(["a b", "c d e"], [], lengths=[2, 3])
    assert of_one(test, [["a", "b"]], [["a", "b"]], 2) is None


def test_a_draw_may_be_of_lines_without_n_grams() -> None:
    test = TranslatedTest(["", "abcdefghijklmnop", ""], [], lengths=[0, 1, 3])
    far = test._replace(references=["abcdefghijklmnop", "", "abcdefghijklmnopq"], lengths=[1, 1, 3])
    parts = of_one(far, [far.references], [far.references], 2)
    assert parts is not None
    assert {(share.mean, share.low, share.high) for share in shares_of(parts)} == {(0, 0, 0)}
    apart = of_one(far, [["b", "", "b"]], [["b", "", "b"]], 2)
    assert apart and (apart.within.mean, apart.within.low, apart.beyond.low) == (1, 1, 1)


def test_seeds_that_differ_make_the_intervals_of_all_systems_wider(test: TranslatedTest) -> None:
    """Runs deviate by as much in all systems, and a system of one run is told nothing of others."""
    half = [" ".join(line.split()[:10]) for line in test.references]
    same, apart = [[half, half]] * 2, [[half, half], [half, test.references]]

    def width(systems: list[list[list[str]]]) -> list[float]:
        limits = [10] * len(systems)
        of_test = test._replace(hypotheses=systems, longest_trained=limits)
        parts = loss_parts(of_test, systems, BOOTSTRAP)
        return [part.beyond.high - part.beyond.low for part in parts if part]

    assert all(wide > 2 * narrow for wide, narrow in zip(width(apart), width(same), strict=True))
    assert width([*apart, [half]])[2] == pytest.approx(width([[half]])[0])
