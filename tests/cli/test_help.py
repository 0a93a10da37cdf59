"""What --help shows: a first page for one screen, and pages for all the rest."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from nmt.cli import prepare, train
from nmt.cli.help import Manual, help_page
from nmt.config.catalog import ABOUT, conf_dir, options_of
from nmt.config.check import keys_of
from nmt.config.settings import Decode
from nmt.errors import Exit, UserError

MANUALS = [train.MANUAL, prepare.MANUAL]


@pytest.mark.parametrize("manual", MANUALS, ids=[manual.name for manual in MANUALS])
def test_the_first_page_fits_a_screen(manual: Manual) -> None:
    lines = help_page(manual, "").split("\n")
    assert len(lines) <= 45 and max(map(len, lines)) <= 100
    for group in manual.groups:
        (line,) = [line for line in lines if line.startswith(f"  {group} ")]
        assert ABOUT[group] in line and f" {len(options_of(group))}  " in line
    for topic in ("GROUP", "GROUP=OPTION", "all"):
        assert any(line.startswith(f"  {manual.name} --help {topic} ") for line in lines)


@pytest.mark.parametrize("name", ["translate", "evaluate", "diagnose", "score", "export_model"])
def test_the_manual_follows_the_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for words in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit) as end:
            import_module(f"nmt.cli.{name}").main(words)
        assert end.value.code == 0
        pages.append(capsys.readouterr().out)
    assert pages[0].count("\n") <= 48 and max(map(len, pages[1].split("\n"))) <= 100
    assert pages[1].startswith(pages[0].rstrip())
    if name in ("translate", "evaluate", "diagnose"):
        assert all(f"\n  decode.{key} " in pages[1] for key in keys_of(Decode))


def test_every_folder_of_options_is_a_group() -> None:
    assert {path.name for path in conf_dir().iterdir() if path.is_dir()} == set(ABOUT)


@pytest.mark.parametrize("group", ABOUT)
def test_the_page_of_a_group_is_its_part_of_everything(group: str) -> None:
    page, whole = help_page(train.MANUAL, group).split("\n"), help_page(train.MANUAL, "all")
    rows = [line for line in page if re.match(r"   [ *] \w|  [\w.]+ {2,}\S.*\]$", line)]
    assert len(rows) >= len(options_of(group))
    assert [row for row in rows if f"{row}\n" not in whole] == []
    for option in options_of(group):
        assert any(row[5:].startswith(f"{option} ") for row in rows)
    others = [key for key in ("model.dim", "trainer.threads", "optim.lr") if group not in key]
    assert not any(f"  {key} " in "\n".join(page) for key in others)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("data=multi30k", "[${data.root}/val.${data.source_language}]"),
        ("optim=adam_inverse_sqrt", "optim.warmup "),
        ("encoding=relative", "  tau "),
        ("encoding=relative_absolute", "encoding.absolute.at.index.start       number of the fi"),
        ("scale=small", "limits.short "),
        ("experiment=demo", "Chooses data=toy model=tiny optim=adam_inverse_sqrt\n"),
        ("experiment=demo", "  trainer.max_steps                      [1600]"),
    ],
)
def test_a_page_says_what_is_set(topic: str, said: str) -> None:
    page = help_page(train.MANUAL, topic)
    assert said in page and len(page.split("\n")) < 55


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("trainr", "--help trainr: no such group; did you mean trainer?"),
        ("trainer=cup", "trainer=cup: no such option; did you mean cpu?"),
    ],
)
def test_an_unknown_topic_gets_one_line(
    topic: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as e:
        help_page(train.MANUAL, topic)
    assert str(e.value).startswith(said) and e.value.code == Exit.USAGE
    assert train.main(["-h", topic]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1


def test_prepare_explains_its_own_groups_alone() -> None:
    assert "data.workers " in help_page(prepare.MANUAL, "data")
    with pytest.raises(UserError, match="--help model: no such group"):
        help_page(prepare.MANUAL, "model")


def test_ones_own_options_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# Mine\n", encoding="utf-8")
    beside = ["--config-dir", str(tmp_path)]
    count = len(options_of("model"))
    assert train.main([*beside, "--help"]) == 0
    assert re.search(rf"^  model +tiny +{count + 1}  ", capsys.readouterr().out, re.M)
    assert train.main(["--help", "model", *beside]) == 0
    assert "     mine                 Mine\n" in capsys.readouterr().out
