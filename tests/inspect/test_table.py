"""nmt-encodings --table: every row of the survey, in its order, from running code."""

import re
from pathlib import Path

import pytest
from torch import Tensor

from nmt.cli.encodings import main
from nmt.config.catalog import family_of, options_of
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.inspect import table
from nmt.inspect.survey import ELSEWHERE, METHODS, Method

PRINTED = """Transformer w/ emb.|BERT|Reformer|FLOATER|Shortformer|Wang et al. (2020)|
Shaw et al. (2018) (abs)|Shaw et al. (2018) (rel)|T5|Huang|DeBERTa|Transformer XL|TENER|
DA-Transformer|TUPE|RNN-Transf.|SPE|Transformer w/ sin.|Li et al.|Takase|Oka|Universal Transf.|
DiSAN|Rotary|SPR-abs|SPR-rel|TPE|Struct. Transformer|Graph Transformer (Cai|Graformer|
Graph Transformer (Dwivedi|graph-bert""".replace("\n", "")  # its rows, from top to bottom
BY_OPTION = {method.choices[0]: method for method in METHODS if method.choices}


def test_all_rows_stand_in_the_order_of_the_survey() -> None:
    for method, name in zip(METHODS, PRINTED.split("|"), strict=True):
        assert method.name.startswith(name)
        assert len(method.cells) == 5 and method.parameters
        assert bool(method.choices) != bool(method.reason)


def test_every_option_has_a_line() -> None:
    others = [method.choices[0] for method in table.others()]
    named = {choice.split()[0] for m in (*METHODS, *ELSEWHERE) for choice in m.choices}
    assert named | set(others) >= set(options_of("encoding"))
    assert not named & set(others)


def test_the_printed_table_has_the_families_of_the_files() -> None:
    text = (Path(__file__).parents[2] / "docs" / "encodings.md").read_text(encoding="utf-8")
    printed = re.findall(r"^\| [^|]*\| `(\w+)[^`]*` \| ([^|]*) \| [AR B-]", text, flags=re.M)
    assert len(printed) > 60
    assert printed == [(option, family_of(option)) for option, _ in printed]


def test_a_line_says_what_runs() -> None:
    (line,) = table.lines(BY_OPTION["relative"], ["model=base"])
    assert line == [
        *("Shaw et al. (2018) (rel)", "relative", "distances, as vectors"),
        *("R", "mam", "yes", "yes", "no"),
        *("2 (2 t - 1) d l", "50,688", "yes"),
    ]


def test_a_cell_that_differs_shows_both() -> None:
    wrong = Method("x", ("A", "mam", "yes", "yes", "yes"), "0", ("relative",))
    (line,) = table.lines(wrong, ["model=tiny"])
    assert line[3] == "R* (A)" and line[4] == "mam" and line[7] == "no* (yes)"


def test_what_is_missing_says_why() -> None:
    (line,) = table.lines(
        Method("x", ("A", "ape", "no", "no", "yes"), "0", reason="needs a tree"), []
    )
    assert line[-1] == "no: needs a tree"


def test_a_broken_encoding_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Index, index: Tensor, context: Context) -> Tensor:
        return index if context.key_caches is None else 0 * index  # in decoding, all are at 0

    monkeypatch.setattr(Index, "assign", wrong)
    (line,) = table.lines(BY_OPTION["relative"], ["model=tiny", "tau=4"])
    assert line[-1].startswith("no: ")


def test_the_table_is_markdown_and_aligned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = (BY_OPTION["relative"], next(m for m in ELSEWHERE if m.reason))
    monkeypatch.setattr(table, "METHODS", methods)
    monkeypatch.setattr(table, "ELSEWHERE", ())
    monkeypatch.setattr(table, "others", lambda folders: [])
    assert main(["--table", "model=tiny"]) == 0
    shown = capsys.readouterr().out
    assert "| Shaw et al. (2018) (rel) " in shown and "non-autoregressive decoder" in shown
    rows = [line for line in shown.split("\n") if line.startswith("|")]
    assert {line.count(" | ") for line in rows} == {len(table.HEAD) - 1}
    assert len({len(line) for line in rows[:4]}) == 1  # aligned
