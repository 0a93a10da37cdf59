"""The stage tests: sets from folders, from sacreBLEU's registry, and from nowhere."""

import re
import sys
from typing import Any

import pytest

from nmt.cli.recipe import main as recipe
from nmt.recipes.testsets import JoinedSets, join_sets
from tests.recipes import miniature
from tests.recipes.conftest import Make, lines


def test_sets_of_other_lengths_and_single_sides(
    mini: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    it = mini()
    path = it.folder / "sets" / "newstest2013.en"
    path.write_bytes(path.read_bytes() + b"one more\n")
    assert recipe(it.words("tests")) == 65
    assert "newstest2013.en: 8 lines; newstest2013 has 7" in capsys.readouterr().err
    path.unlink()
    assert recipe(it.words("tests")) == 66
    assert "only one side of newstest2013" in capsys.readouterr().err


def test_a_set_that_changes_while_it_is_read_is_read_again(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()
    path = it.folder / "sets" / "newstest2013.en"
    before = path.read_bytes()

    def changing(*arguments: Any) -> JoinedSets:
        path.write_bytes(before.replace(b" ", b"  ", 1))
        return join_sets(*arguments)

    monkeypatch.setattr("nmt.recipes.wmtsets.join_sets", changing)
    assert recipe(it.words("tests")) == 0
    assert (it.root / "test" / path.name).read_bytes() == before
    capsys.readouterr()
    assert recipe(it.words("tests")) == 0
    assert "tests: other newstest2013\n" in capsys.readouterr().err
    assert (it.root / "test" / path.name).read_bytes() == path.read_bytes() != before


def test_sets_come_from_sacrebleu(mini: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its files where it keeps them, its registry needs no network."""
    from sacrebleu.dataset import DATASETS

    it = mini()
    home = it.folder / "sacrebleu"
    for name, known in (("newstest2015", "wmt15"), ("newstest2014", "wmt14/full")):
        (home / known).mkdir(parents=True)
        monkeypatch.setattr(DATASETS[known], "_outdir", str(home / known))
        for code, field in (("de", "src"), ("en", "ref")):
            data = (it.folder / "sets" / f"{name}.{code}").read_bytes()
            (home / known / f"{known.replace('/', '_')}.de-en.{field}").write_bytes(data)
            (it.folder / "sets" / f"{name}.{code}").unlink()
        for more in ("docid", "genre", "origlang"):
            (home / known / f"{known.replace('/', '_')}.de-en.{more}").write_bytes(b"x\n")
    assert recipe(it.words("tests")) == 0
    wanted = miniature.pairs(it.name, 7, "newstest2015")
    assert lines(it.root / "dev.de") == [pair[0] for pair in wanted]


def test_sets_that_nobody_has(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()
    for name in ("newstest2010", "newstest2011"):
        for path in (it.folder / "sets").glob(f"{name}.*"):
            path.unlink()

    def refuse(name: str, pair: str) -> str:
        if name == "wmt11":
            sys.exit(1)  # as sacreBLEU does
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.utils.get_source_file", refuse)
    assert recipe(it.words("tests")) == 69
    said = capsys.readouterr().err
    files = "newstest2010.de and newstest2010.en"
    assert f"\n  newstest2010 ({files}): sacreBLEU's wmt10: no network\n" in said
    assert "newstest2011.en): sacreBLEU refuses its download" in said
    assert re.search(
        r"^nmt: tests: cannot be downloaded: newstest2010, newstest2011; .* add --local FOLDER;",
        said,
        re.M,
    )
    assert (it.root / "test" / "newstest2012.de").exists()  # the others were not held up
