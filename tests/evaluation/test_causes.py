"""End sign, place and content are told apart where it is known which one it is."""

import random
from typing import NamedTuple

import pytest

from nmt.evaluation.lost import causes_of_loss, count_losses
from nmt.evaluation.report import BEYOND, Figure

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text(words: int, draw: random.Random) -> str:
    return " ".join("".join(draw.choices(LETTERS, k=5)) for _ in range(words))


class Text(NamedTuple):
    """References and their lengths."""

    references: list[str]
    lengths: list[int]


@pytest.fixture
def test() -> Text:
    """40 lines of 10 words, within the trained length, and 40 of 20, beyond it."""
    draw = random.Random(1)
    references = [text(10 + 10 * (n % 2), draw) for n in range(80)]
    return Text(references, [len(line.split()) for line in references])


def parts_of(
    test: Text, free: list[list[str]], forced: list[list[str]], longest: int = 10
) -> dict[str, Figure]:
    """The parts of one system by name, from the translations of its runs."""
    pairs = zip(free, forced, strict=True)
    counts = [[count_losses(*test, longest, *pair) for pair in pairs]]
    rows = causes_of_loss("t", ["system"], counts, samples=200, seed=3)
    assert {row.group for row in rows if row.metric != "lost within"} <= {BEYOND}
    return {row.metric: row for row in rows}


def test_shares_by_plain_loops_and_means_over_runs(test: Text) -> None:
    """Free search gives half of the words in one run, all in the other; forced all, without one."""
    halves = [" ".join(line.split()[:5]) for line in test.references]
    without = [" ".join(line.split()[1:]) for line in test.references]
    parts = parts_of(test, [halves, test.references], [without, without])
    for share in parts.values():
        assert share.low is not None and share.high is not None
        assert share.low <= share.mean <= share.high

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

    near = [i for i, n in enumerate(test.lengths) if n == 10]
    far = [i for i, n in enumerate(test.lengths) if n == 20]
    shares = {}
    for name, lines, hypotheses, beginning in (
        ("within", near, halves, False), ("beyond", far, halves, False),
        ("forced", far, without, False), ("start", far, without, True),
    ):  # fmt: skip
        absent, total = lost(lines, hypotheses, beginning)
        shares[name] = absent / total
    assert parts["lost within"].mean == pytest.approx(shares["within"] / 2)
    assert parts["lost beyond"].mean == pytest.approx(shares["beyond"] / 2)
    assert parts["end sign"].mean == pytest.approx(shares["beyond"] / 2 - shares["forced"])
    assert parts["place"].mean == pytest.approx(shares["forced"] - shares["start"])
    assert parts["content"].mean == pytest.approx(shares["start"] - shares["within"] / 2)


@pytest.mark.parametrize("longest", [9, 20])
def test_nothing_without_lines_on_both_sides(test: Text, longest: int) -> None:
    runs = [test.references]
    assert parts_of(test, runs, runs, longest) == {}
