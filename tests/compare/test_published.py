"""The paper's numbers are the paper's: every cell, sums, and how they are found."""

import pytest

from nmt.compare import published
from nmt.compare.buckets import from_bounds
from nmt.compare.published import cell, table_of, tables

PAPER = {  # Rosendahl et al. (2019), Tables 2 to 4, as printed: BLEU row and TER row of each line
    "Table 2": {
        "absolute 100": ("31.7 32.0 31.4 29.3 21.5", "57.9 57.3 58.5 62.3 69.3"),
        "relative 100": ("31.8 32.2 31.8 29.3 29.3", "58.1 57.1 58.1 62.7 62.7"),
        "LSTM 100": ("31.4 31.9 31.4 28.7 25.5", "58.6 57.5 58.4 63.9 66.6"),
        "absolute 75": ("31.7 32.0 31.2 25.9 15.3", "58.1 57.3 58.6 65.0 74.5"),
        "relative 75": ("31.7 31.9 31.5 29.6 27.2", "58.0 57.4 58.5 62.2 66.3"),
    },
    "Table 3": {
        "absolute 100": ("26.9 27.1 27.2 27.4 20.1", "63.8 62.3 62.4 62.5 71.0"),
        "relative 100": ("27.0 26.9 27.2 27.3 24.5", "63.5 62.7 62.9 63.2 67.0"),
        "absolute 75": ("26.7 26.9 26.9 22.7 14.9", "63.0 62.4 62.5 66.3 74.6"),
        "relative 75": ("26.8 27.1 27.3 27.0 24.2", "63.0 62.3 62.3 62.8 66.2"),
    },
    "Table 4": {
        "relative 100": ("27.0 26.9 27.2 27.3 24.5", "63.5 62.7 62.9 63.2 67.0"),
        "relative sinusoidal 100": ("26.4 26.9 27.1 27.0 24.5", "63.9 62.8 63.2 63.3 66.5"),
        "relative K only 100": ("27.1 27.1 27.1 27.1 24.4", "63.0 62.1 62.5 62.9 66.8"),
        "relative + absolute 100": ("26.2 26.7 27.0 26.7 22.5", "63.9 62.7 62.5 63.5 67.3"),
    },
}
BUCKETS = [bucket.name for bucket in from_bounds([25, 50, 75, 100])]


@pytest.mark.parametrize("table", PAPER)
def test_every_cell(table: str) -> None:
    assert list(tables()[table]["systems"]) == list(PAPER[table])
    for system, rows in PAPER[table].items():
        for metric, row in zip(("BLEU-moses", "TER-moses"), rows, strict=True):
            found = [cell(table, system, bucket, metric) for bucket in BUCKETS]
            assert found == [float(number) for number in row.split()]


def test_table_1() -> None:
    scores = {
        (test, system): [cell(table_of("Table 1", test) or "", system, "all", m) for m in METRICS]
        for test in ("newstest2018", "newstest2019")
        for system in ("absolute 100", "relative 100")
    }
    assert list(scores.values()) == [[40.4, 46.7], [40.4, 46.9], [24.0, 64.0], [25.0, 62.9]]


METRICS = list(published.METRICS)


def test_the_groups_add_up_to_the_test_sets() -> None:
    def pairs(table: str) -> dict[str, int]:
        return tables()[table]["pairs"]

    assert sum(pairs("Table 2").values()) == 28_075
    assert sum(pairs("Table 3").values()) == sum(pairs("Table 4").values()) == 14_038
    assert 14_038 == -(-28_075 // 2)
    assert list(pairs("Table 2")) == list(pairs("Table 3")) == BUCKETS


def test_how_tables_are_named_and_what_is_not_there() -> None:
    assert [table_of(f"Table {n}", "any") for n in (2, 3, 4)] == ["Table 2", "Table 3", "Table 4"]
    assert table_of("Table 1", "newstest2018") == "Table 1, De-En"
    assert table_of("Table 1", "newstest2019") == "Table 1, Zh-En"
    assert table_of("Table 1", "newstest_all") is None
    assert table_of("Table 5", "newstest_all") is None and table_of("Table", "x") is None
    assert cell("Table 2", "absolute 100", "all", "TER-moses") is None
    assert cell("Table 2", "absolute 100", "0-25", "BLEU") is None  # the paper's is tokenised
    assert cell("Table 2", "rotary", "0-25", "TER-moses") is None
