"""What --help shows: a first page for one screen, and pages for all the rest."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from nmt.cli import prepare, train
from nmt.cli.help import Manual, help_page
from nmt.config.catalog import TITLES, options_of
from nmt.config.check import keys_of
from nmt.config.settings import Decode


@pytest.mark.parametrize("manual", [train.MANUAL, prepare.MANUAL], ids=lambda m: m.name)
def test_the_first_page_fits_a_screen(manual: Manual) -> None:
    lines = help_page(manual, "").split("\n")
    assert len(lines) <= 45 and max(map(len, lines)) <= 100
    for group in manual.groups:
        (line,) = [line for line in lines if line.startswith(f"  {group} ")]
        assert TITLES[group] in line and f" {len(options_of(group))}  " in line
    for topic in ("GROUP", "GROUP=OPTION", "all"):
        assert any(line.startswith(f"  {manual.name} --help {topic} ") for line in lines)


@pytest.mark.parametrize("name", ["translate", "evaluate", "export_model"])
def test_the_manual_follows_the_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for words in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit) as end:
            import_module(f"nmt.cli.{name}").main(words)
        assert end.value.code == 0
        pages.append(capsys.readouterr().out)
    assert pages[0].count("\n") <= 48 and max(map(len, pages[1].split("\n"))) <= 100
    assert pages[1].startswith(pages[0].rstrip())
    if name != "export_model":
        assert all(f"\n  decode.{key} " in pages[1] for key in keys_of(Decode))


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("data=multi30k", "[${data.root}/val.${data.source_language}]"),
        ("encoding=relative_absolute", "encoding.absolute.at.index.start       number of the fi"),
        ("experiment=demo", "Chooses data=toy model=tiny optim=adam_inverse_sqrt\n"),
    ],
)
def test_a_page_says_what_is_set(topic: str, said: str) -> None:
    page = help_page(train.MANUAL, topic)
    assert said in page and len(page.split("\n")) < 55


@pytest.mark.parametrize("topic", ["trainr", "trainer=cup"])
def test_an_unknown_topic_gets_one_line(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["-h", topic]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and topic in err


def test_ones_own_options_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# Mine\n", encoding="utf-8")
    beside = ["--config-dir", str(tmp_path)]
    count = len(options_of("model"))
    assert train.main([*beside, "--help"]) == 0
    assert re.search(rf"^  model +tiny +{count + 1}  ", capsys.readouterr().out, re.M)
    assert train.main(["--help", "model", *beside]) == 0
    assert "     mine                 Mine\n" in capsys.readouterr().out
