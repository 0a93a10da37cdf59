"""nmt-encodings: the list and the cards, all from the code."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmt.cli.cards import live
from nmt.cli.cards.card import card, counted
from nmt.cli.cards.facts import facts_of
from nmt.cli.cards.specimen import entries, small
from nmt.cli.encodings import main
from nmt.config import Settings
from nmt.encodings.absolute import Absolute
from nmt.encodings.context import Context
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import FAMILIES, UNSTATED, entries_of, families, family_of, options_of

OPTIONS = options_of("encoding")
MORE = {"complex_order": ["model.feedforward=complex"]}


def settings_of(option: str, *words: str) -> Settings:
    return experiment_of([f"encoding={option}", *MORE.get(option, []), *words]).settings


def test_lists_every_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.split("\n")
    options = [line for line in lines if line.startswith("  ")]
    assert sorted(line.split()[0] for line in options) == OPTIONS
    assert all(len(line.split()) > 3 for line in options)
    assert [line for line in lines if line and line not in options] == [
        family for family in FAMILIES if family in lines
    ]


def test_the_list_needs_no_torch() -> None:
    code = (
        "import sys; from nmt.cli.encodings import main; main([]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


SHOWN = {  # by family, the reference points and injections that running an option may show
    "no positions": ({"-"}, {"-"}),
    "absolute positions, at the input": ({"A"}, {"ape", "-"}),
    "absolute positions, in attention": ({"A", "B"}, {"ape", "mam"}),
    "distances, as vectors": ({"R"}, {"mam"}),
    "distances, as a bias or a factor": ({"R"}, {"mam"}),
    "distances, from changed queries and keys": ({"R"}, {"mam"}),
    "order by recurrence or convolution": ({"R"}, {"-"}),
}
BY_COLUMNS, SEVERAL = FAMILIES[-2:]


@pytest.mark.parametrize("option", OPTIONS)
def test_the_family_agrees_with_what_runs(option: str) -> None:
    """What the file of an option states is what the objects do."""
    family, specimen = family_of(option), small(settings_of(option))
    known = facts_of(specimen, option)
    assert family in FAMILIES
    assert (family == BY_COLUMNS) == bool(specimen.model.columns)
    if family == SEVERAL:
        assert len({family_of(entry) for entry in entries_of(option)}) > 1
    elif family != BY_COLUMNS:
        references, injections = SHOWN[family]
        assert known.reference in references and known.injection in injections


def test_families_of_options_that_share_a_class() -> None:
    for name in ("scalar", "diet"):
        assert family_of(f"{name}_absolute") == "absolute positions, in attention"
        assert family_of(f"{name}_relative") == "distances, as a bias or a factor"


def test_a_family_of_ones_own_comes_last_and_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    for name, line in {
        "a": "# family: dreams \n",
        "b": "",
        "c": "# family: no positions\n",
    }.items():
        text = f"# @package _global_\n# What it does\n{line}encoding: {{}}\n"
        (tmp_path / "encoding" / f"{name}.yaml").write_text(text, encoding="utf-8")
    found = families((tmp_path,))
    assert list(found) == [*FAMILIES, "dreams", UNSTATED]
    assert found["dreams"] == ["a"] and found[UNSTATED] == ["b"]
    assert found["no positions"] == ["c", "none"]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_has_a_card(option: str) -> None:
    shown = card(option, settings_of(option), timed=False)
    assert shown.startswith(option) and "parameters" in shown
    assert "cached decoding     exact" in shown
    rows = (
        "family",
        "reference point",
        "injection",
        "learnable",
        "recurring",
        "unbound",
        "interpolation",
    )
    assert all(f"\n  {row} " in shown for row in rows)
    assert max(len(line) for line in shown.split("\n  keys")[0].split("\n")) <= 140


@pytest.mark.parametrize(
    "option, expected",
    [
        ("none", "- - False False True"),
        ("absolute", "A ape False False True"),
        ("learned", "A ape True False False"),
        ("relative", "R mam True True False"),
        ("relative_absolute", "B both True True False"),
        ("rotary", "R mam False True True"),
        ("lstm", "R - True False True"),
        ("position_infused", "A ape False True True"),
        ("complex_order", "A - True True True"),
        ("tupe_relative", "B mam True True False"),
    ],
)
def test_the_columns_of_the_survey(option: str, expected: str) -> None:
    assert " ".join(map(str, facts_of(small(settings_of(option))))) == expected


@pytest.mark.parametrize(
    "option, total",
    [
        ("none", 0),
        ("learned", 1_048_576),
        ("relative", 50_688),
        ("relative_key", 25_344),
        ("lstm", 20_472_832),
        ("rotary", 0),
    ],
)
def test_counts_at_base_size(option: str, total: int) -> None:
    counts = counted(settings_of(option, "model=base"))
    assert sum(n for n, _ in counts) == total and not any(words for _, words in counts)


def test_counts_at_the_chosen_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=base", "--no-timing"]) == 0
    shown = capsys.readouterr().out
    assert "50,688 in a model of 512 x 6+6 layers" in shown and "\n  time" not in shown


def test_the_time_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=tiny", "model.dim=32"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # wherever the lines break
    assert "interleaved pairs" in shown and "kept for the backward pass" in shown


def test_a_shifted_index_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding whose positions start at 0 at every step is what the live check is for."""
    right = Absolute.embed

    def wrong(self: Absolute, x: object, context: Context) -> object:
        context.queries = context.queries - context.queries[:, :1]
        return right(self, x, context)  # type: ignore[arg-type]

    assert live.works(settings_of("absolute")).holds
    monkeypatch.setattr(Absolute, "embed", wrong)
    broken = live.works(settings_of("absolute"))
    assert not broken.holds and "largest difference" in broken.said
    assert "cached decoding     WRONG" in card("absolute", settings_of("absolute"), timed=False)


def test_shift_and_order_are_tried() -> None:
    absolute, rotary, none = (small(settings_of(o)) for o in ("absolute", "rotary", "none"))
    shifted = [live.shift(s) for s in (absolute, rotary, none)]
    assert [s is not None and s.holds for s in shifted] == [False, True, True]
    assert [live.permutation(s).holds for s in (absolute, rotary, none)] == [False, False, True]
    assert all(type(e.positions) is not live.Shifted for _, e in entries(rotary.model))  # undone


def test_interpolation_and_limits() -> None:
    assert live.interpolation(small(settings_of("rotary"))).holds
    refused = live.interpolation(small(settings_of("relative")))
    assert refused == (False, "it knows whole positions only")
    assert live.beyond(small(settings_of("learned")), 1024).startswith("refused")
    assert live.beyond(small(settings_of("rotary")), None) == "1,000 tokens encode to finite states"


@pytest.mark.parametrize(
    "words, said",
    [
        (["relativ"], "relativ: no such encoding; did you mean relative?"),
        (["tau=8"], "tau=8: of which encoding? nmt-encodings NAME KEY=VALUE"),
        (["relative", "rotary"], "rotary: expected KEY=VALUE after relative"),
        (["--markdown"], "--markdown: only the --table has a form for it"),
        (["--run", "x"], "--run: draws what a run has learnt; give --plot FILE, too"),
        (["relative", "--table"], "relative: --table takes KEY=VALUE words, not a name"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"nmt: {said}\n"
