"""Lock files: each entry of those that come with nmt."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nmt.errors import UserError
from nmt.recipes import lock as locks
from nmt.recipes.lock import Archive, PinnedCorpus

RECIPES = {name: locks.read(locks.path_of(name)) for name in locks.names()}
CORPORA = [(name, c) for name, lock in RECIPES.items() for c in lock.corpora]
ARCHIVES = [(c, a) for _, c in CORPORA for a in c.archives]


def test_the_recipes() -> None:
    assert set(RECIPES) == {"wmt19_deen", "wmt19_zhen"}
    assert len(ARCHIVES) == 5 + 9


@pytest.mark.parametrize(("corpus", "archive"), ARCHIVES, ids=[a.file for _, a in ARCHIVES])
def test_each_archive_is_pinned(corpus: PinnedCorpus, archive: Archive) -> None:
    assert archive.urls[0].startswith("https://")
    for url in archive.urls:
        assert urlsplit(url).path.endswith(f"/{archive.file}")
    assert all("https" + u.removeprefix("http") in archive.urls
               for u in archive.urls if u.startswith("http:"))  # fmt: skip
    for version in archive.versions:
        assert re.fullmatch("[0-9a-f]{64}", version.sha256)
        assert 3e7 < version.size < 1.5e9
        assert len(set(version.sha256)) > 8  # no placeholder
    assert corpus.text > archive.versions[0].size / 3


def test_no_hash_stands_there_twice() -> None:
    found = [v.sha256 for _, a in ARCHIVES for v in a.versions]
    # News Commentary is in both recipes, as different files
    assert len(found) == len(set(found)) == 15


@pytest.mark.parametrize(("recipe", "corpus"), CORPORA, ids=[f"{n}-{c.id}" for n, c in CORPORA])
def test_members_are_named_for_each_side(recipe: str, corpus: PinnedCorpus) -> None:
    marks = {"de": r"\.de$", "en": r"\.en$|_en\.txt$", "zh": r"\.zh$|_(ch|cn)\.txt$"}
    assert bool(corpus.pairs) != bool(corpus.columns)
    for pair in corpus.pairs:
        assert sorted(pair) == sorted(RECIPES[recipe].languages)
        for code, names in pair.items():
            assert all(re.search(marks[code], name) for name in names)
    assert {a.file.endswith(".tsv.gz") for a in corpus.archives} == {bool(corpus.columns)}
    if corpus.columns:  # the order of the columns is that of the languages in the file's name
        assert "-".join(corpus.columns) in corpus.archives[0].file


def test_what_the_paper_takes() -> None:
    deen, zhen = RECIPES["wmt19_deen"], RECIPES["wmt19_zhen"]
    corpora = ["commoncrawl", "europarl", "news_commentary", "rapid2019"]
    assert [corpus.id for corpus in deen.corpora] == corpora
    assert sum(deen.sets[name].lines or 0 for name in deen.all) == 28_075
    assert (deen.dev, zhen.dev) == (["newstest2015"], ["newsdev2017", "newstest2017"])
    assert set(deen.sets) == {*deen.dev, *deen.all} and "newstest2018" in deen.sets
    assert set(zhen.sets) == {*zhen.dev, "newstest2019"}
    assert (deen.tables, zhen.tables) == (["table1", "table2", "table3"], ["table1"])
    sizes = {c.id: [v.size for v in c.archives[0].versions] for c in zhen.corpora}
    assert sizes["neu2017"] == [150311715, 148681171]
    assert (
        len(zhen.corpora) == 8 and len(next(c for c in zhen.corpora if c.id == "un").archives) == 2
    )


def test_what_stands_in_a_comment_can_take_the_place(tmp_path: Path) -> None:
    text = locks.path_of("wmt19_deen").read_text("utf-8")
    start = text.index('[[corpora]]\nid = "rapid2019"')
    _, comment = text[start:].split("with --lock FILE:\n")
    block, rest = comment.split("\n\n", 1)
    (tmp_path / "x.toml").write_text(
        text[:start] + re.sub("^# ?", "", block, flags=re.M) + "\n" + rest, "utf-8"
    )
    corpus = locks.read(tmp_path / "x.toml").corpora[-1]
    assert corpus.id == "rapid2016" and corpus.archives[0].versions[0].size == 161050516


def test_sets_are_known_to_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for lock in RECIPES.values():
        for known in lock.sets.values():
            dataset = DATASETS[known.sacrebleu]
            assert f"{lock.source}-{lock.target}" in dataset.langpairs, known
            assert len(dataset.md5 or ()) == len(dataset.data or ()) > 0  # of what it extracts


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 4", "format =", "Invalid value"),
        ("format = 4", "format = 9", "format: 9; this version of nmt reads 4"),
        ("title =", "titel =", "titel"),
        ("urls =", "url =", "'urls'"),
        ("text =", "bytes =", "bytes"),
    ],
)
def test_another_file(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(locks.path_of("wmt19_deen").read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(UserError, match=f"x.toml: no valid lock file: .*{said}") as caught:
        locks.read(path)
    assert caught.value.code == 65


def test_no_file_and_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file") as caught:
        locks.read(tmp_path / "x.toml")
    assert caught.value.code == 66
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"no valid lock file: .*utf-8"):
        locks.read(tmp_path / "x.toml")
