"""Coverage of the source against loops over single sentences; batches change nothing."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from nmt.evaluation.attention import SAMPLE, count_unattended, draw_lines, measure_coverage
from nmt.model.layers import AttentionRecord, watching
from nmt.modeldir import Trained
from nmt.text.columns import ColumnLine, expand
from nmt.text.vocab import BOS

PIECES = [letter + end for letter in "abcdefgh" for end in ("", "@@")]
SOURCES = ["ab c", "h", "abc d ef", "a b c d", "gh", "abcdef abc h"]
HYPOTHESES = ["a b", "abc hg d e", "", "fed cba", "a", "h z g"]  # z is unknown
COLUMNS = {
    "heads": ["0 1", "0", "2 0 2", "0 1 2 3", "0", "3 1 0"],
    "order": ["1 0", "0", "2 1 0", "0 1 3 2", "0", "0 2 1"],
    "depth": ["0 1", "0", "1 0 1", "0 1 2 3", "0", "1 2 0"],
    "labels": ["0 3", "0", "1 0 2", "0 1 2 1", "0", "4 1 0"],
    "language": ["0", "1", "0", "1", "1", "0"],
}
PER = {"language": "sentence"}

Make = Callable[..., Trained]
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


@pytest.fixture
def trained(of_letters: Make) -> Make:
    """A model that was never trained, with segmenters of single letters."""
    return partial(of_letters, letters=PIECES)


def by_hand(some: Trained, place: int) -> list[float]:
    """Coverage of one sentence, in loops."""
    source, hypothesis = SOURCES[place], HYPOTHESES[place]
    ids, target = some.source.ids(source), [BOS, *some.target.ids(hypothesis)[:-1]]
    model = some.model
    beside = {
        name: ColumnLine(PER.get(name, "word"), COLUMNS[name][place], "here")
        for name in model.columns - {"words"}
    }
    expanded = expand(source, beside, some.source.segmenter, "here", words="words" in model.columns)
    columns = {name: torch.tensor([row]) for name, row in expanded.items()}
    records: list[AttentionRecord] = []
    with torch.inference_mode(), watching(model, records.append):
        model.hidden(torch.tensor([ids]), torch.tensor([target]), columns)
    n, steps, heads = len(ids) - 1, len(target) - 1, 2
    cross = [p for site, _, p, _ in records if site == "cross"]
    weights = len(cross) * model.streams * heads
    return [
        sum(
            float(p[stream, head, i, j]) / weights
            for p in cross
            for stream in range(model.streams)
            for head in range(heads)
            for i in range(steps)
        )
        for j in range(n)
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=absolute"],
        ["encoding=relative", "model.norm=post"],
        ["encoding=complex_order"],
        ["encoding=tpe"],
        ["encoding=ldpe"],
    ],
    ids=" ".join,
)
def test_sums_by_hand(words: list[str], trained: Make) -> None:
    some = trained(*words)
    for place, covered in enumerate(measure_coverage(some, SOURCES, HYPOTHESES, COLUMNS)):
        assert covered == pytest.approx(by_hand(some, place), abs=1e-5)


@pytest.mark.parametrize("option", ["rotary", "lstm", "xl_pe", "complex_order"])
def test_batches_change_nothing(option: str, trained: Make) -> None:
    some = trained(f"encoding={option}")
    together = measure_coverage(some, SOURCES, HYPOTHESES, COLUMNS)
    alone = measure_coverage(some, SOURCES, HYPOTHESES, COLUMNS, tokens=1)
    for a, b, source, text in zip(together, alone, SOURCES, HYPOTHESES, strict=True):
        outputs = len(some.target.ids(text)) - 1
        assert len(a) == len(some.source.segmenter.encode(source))
        assert a == pytest.approx(b, abs=1e-4)
        assert 0 < sum(a) < outputs or outputs == sum(a) == 0


def test_empty_sides(trained: Make) -> None:
    some = trained("encoding=absolute")
    first, second, third = measure_coverage(some, ["", "a b", "c"], ["", "", "d"])
    assert first == [] and second == [0, 0] and sum(third) > 0
    assert measure_coverage(some, [], []) == []


def test_what_the_table_cannot_hold_has_no_attention(trained: Make) -> None:
    some = trained("encoding=learned", "encoding.learned.size=6")
    assert (some.model.source_limit, some.model.target_limit) == (6, 6)
    long, cut = measure_coverage(
        some, ["a b c d e f g", "a b c d e"], ["a b c d e f g h", "a b c d e"]
    )
    assert len(long) == 7 and long[5:] == [0, 0] and long[:5] == pytest.approx(cut)
    tree = trained("encoding=[learned,tpe]", "encoding.learned.size=4")
    (seen,) = measure_coverage(tree, ["a b c d e"], ["a"], {"heads": ["0 5 2 1 1"]})
    assert seen[3:] == [0, 0] and min(seen[:3]) > 0


def test_what_got_little_is_counted_line_by_line(trained: Make) -> None:
    some = trained("encoding=absolute")
    counts = count_unattended(some, SOURCES, HYPOTHESES, [0, 2, 3])
    whole = measure_coverage(some, SOURCES, HYPOTHESES)
    assert counts[1].tolist() == [0, 0]
    for i in (0, 2, 3):
        assert counts[i].tolist() == [sum(c < 0.2 for c in whole[i]), len(whole[i])]
    assert counts[2][0] == counts[2][1] > 0  # an empty translation attends to nothing


def test_samples_are_fixed_and_hold_no_empty_line() -> None:
    texts = ["" if i % 2 else "x" for i in range(80)]
    lines = draw_lines(range(80), texts, seed=1)
    assert len(lines) == SAMPLE and lines == sorted(lines) == draw_lines(range(80), texts, 1)
    assert lines != draw_lines(range(80), texts, 2) and not any(i % 2 for i in lines)
    assert draw_lines(range(4), texts, 1) == [0, 2]
