"""The stage tests: sets from folders, from sacreBLEU's registry, and from nowhere."""

import re
import sys
from typing import Any

import pytest
import sacrebleu.utils
from portalocker import AlreadyLocked

from nmt.cli.recipe import main as recipe
from nmt.recipes import wmtsets
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

    copy = wmtsets._copy

    def changing(job: Any, name: str, *paths: Any) -> None:
        copy(job, name, *paths)
        if name == "newstest2013":
            path.write_bytes(before.replace(b" ", b"  ", 1))

    monkeypatch.setattr(wmtsets, "_copy", changing)
    assert recipe(it.words("tests")) == 0
    assert (it.root / "test" / path.name).read_bytes() == before
    capsys.readouterr()
    assert recipe(it.words("tests")) == 0
    assert "tests: other newstest2013\n" in capsys.readouterr().err
    assert (it.root / "test" / path.name).read_bytes() == path.read_bytes() != before


def test_sets_come_from_sacrebleu(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    path = home / "wmt15" / "wmt15.de-en.src"
    whole = path.read_bytes()
    path.write_bytes(b"cut by a full disk")
    assert recipe(it.words("tests")) == 65
    said = capsys.readouterr().err
    assert f"{path}: 1 lines; newstest2015 has 7; remove {home / 'wmt15'} to retry\n" in said
    path.write_bytes(whole)
    assert recipe(it.words("tests")) == 0
    wanted = miniature.pairs(it.name, 7, "newstest2015")
    assert lines(it.root / "dev.de") == [pair[0] for pair in wanted]


def test_sets_that_nobody_has(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS

    it = mini(moods={"test.tgz": ["short"]})
    home = it.folder / "sacrebleu"
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(home))
    for year in range(2010, 2015):
        for path in (it.folder / "sets").glob(f"newstest{year}.*"):
            path.unlink()
    for known in ("wmt10", "wmt11"):
        monkeypatch.setattr(DATASETS[known], "data", [f"{it.server.url}/test.tgz"])
        monkeypatch.setattr(DATASETS[known], "_outdir", str(home / known))
        monkeypatch.setattr(DATASETS[known], "_rawdir", str(home / known / "raw"))
    it.server.files["test.tgz"] = b"ab"
    for known in ("wmt11", "wmt12"):
        (home / known / "raw").mkdir(parents=True)
        (home / known / "raw" / f"{known}.test.tgz").write_bytes(b"a")  # a full disk; a download

    def refuse(name: str, pair: str) -> str:
        if name == "wmt12":
            raise AlreadyLocked(BlockingIOError(11, "busy"), "busy")
        if name == "wmt13":
            sys.exit(1)  # as sacreBLEU does
        if name == "wmt14/full":
            raise OSError("no network")
        return get_source_file(name, pair)

    get_source_file = sacrebleu.utils.get_source_file
    monkeypatch.setattr("sacrebleu.utils.get_source_file", refuse)
    assert recipe(it.words("tests")) == 69
    said = capsys.readouterr().err
    why = dict(re.findall(r"^  newstest(\d+) \(.*?\): (.*)$", said, re.M))
    assert why.pop("2011").endswith(f"; remove {home / 'wmt11'} to retry")
    assert why == {
        "2010": "sacreBLEU's wmt10: IncompleteRead(1 bytes read, 1 more expected)",
        "2012": "another process is downloading sacreBLEU's wmt12; wait for it",
        "2013": "sacreBLEU refuses its download",
        "2014": "sacreBLEU's wmt14/full: no network",
    }
    assert "  newstest2010 (newstest2010.de and newstest2010.en): " in said
    assert re.search(
        r"^nmt: tests: cannot be downloaded: newstest2010, .* newstest2014; .* add --local FOLDER;",
        said,
        re.M,
    )
    assert (it.root / "test" / "newstest2016.de").exists()  # the others were not held up
