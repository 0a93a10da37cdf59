"""End sign, place and content are told apart where it is known which one it is."""

import random
from typing import Any, NamedTuple

import pytest

from nmt.evaluation.lost import causes_of_loss, loss_counts
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


Parts = dict[str, Figure]  # by name


def of_systems(
    test: Text, free: list[list[list[str]]], forced: list[list[list[str]]], longest: int = 10
) -> dict[str, Parts]:
    """The parts of each system (system, run -> lines), by its number."""
    counts = [
        [loss_counts(*test, longest, *pair) for pair in zip(*runs, strict=True)]
        for runs in zip(free, forced, strict=True)
    ]
    labels = [str(n) for n in range(len(free))]
    rows = causes_of_loss("t", labels, counts, samples=200, seed=3)
    assert {row.group for row in rows if row.metric != "lost within"} <= {BEYOND}
    found: dict[str, Parts] = {}
    for row in rows:
        found.setdefault(row.system, {})[row.metric] = row
    return found


def of_one(
    test: Text, free: list[list[str]], forced: list[list[str]], longest: int = 10
) -> Parts | None:
    """The parts of one system, by its runs."""
    return of_systems(test, [free], [forced], longest).get("0")


def parts_of(test: Text, free: Any, forced: Any) -> Parts:
    """The parts where `free(words)` and `forced(words)` translate the words of long lines."""

    def translated(by: Any) -> list[str]:
        return [
            " ".join(by(line.split())) if length > 10 else line
            for line, length in zip(*test, strict=True)
        ]

    parts = of_one(test, [translated(free)], [translated(forced)])
    assert parts is not None and len(parts) == 5
    for share in parts.values():
        assert share.low is not None and share.high is not None and share.pairs == 40
        assert share.low <= share.mean <= share.high
    total = sum(parts[name].mean for name in ("end sign", "place", "content"))
    assert total == pytest.approx(parts["lost beyond"].mean - parts["lost within"].mean)
    return parts


def whole(words: list[str]) -> list[str]:
    return words


def fading(words: list[str]) -> list[str]:
    return [*words[:10], *(word[::-1] for word in words[10:])]


def poor(words: list[str]) -> list[str]:
    return [word[::-1] if n % 5 == 2 else word for n, word in enumerate(words)]


def test_each_cause_is_found_where_it_is_known(test: Text) -> None:
    cut = parts_of(test, lambda words: words[:10], whole)  # what comes back with the length
    assert cut["end sign"].mean == pytest.approx(0.5, abs=0.05)
    assert cut["place"].mean == cut["content"].mean == cut["lost within"].mean == 0
    faded = parts_of(test, fading, fading)  # lost behind the beginning
    assert faded["place"].mean == pytest.approx(0.5, abs=0.06)
    assert faded["end sign"].mean == 0 and faded["content"].mean == pytest.approx(0, abs=0.01)
    bad = parts_of(test, poor, poor)  # lost from the beginning on
    assert bad["content"].mean == pytest.approx(bad["lost beyond"].mean, abs=0.05)
    assert bad["content"].mean > 0.3
    assert abs(bad["place"].mean) < 0.05 and bad["end sign"].mean == 0


def test_shares_by_plain_loops_and_means_over_runs(test: Text) -> None:
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
    assert of_one(test, runs, runs, longest) is None
    assert of_systems(test, [[]], [[]]) == {}
