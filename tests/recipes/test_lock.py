"""Lock files: each entry of the real ones, and what is said of a wrong one."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nmt.errors import UserError
from nmt.recipes import lock as locks
from nmt.recipes.lock import Archive, PinnedCorpus
from nmt.recipes.stamp import RecipeJob

RECIPES = {name: locks.read(locks.path_of(name)) for name in locks.names()}
CORPORA = [(name, c) for name, lock in RECIPES.items() for c in lock.corpora]
ARCHIVES = [(c, a) for _, c in CORPORA for a in c.archives]


def test_the_recipes() -> None:
    assert set(RECIPES) == {"wmt19_deen", "wmt19_zhen"}
    assert len(ARCHIVES) == 6 + 9


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
    assert corpus.cap * max(1, 2 * len(corpus.pairs)) > corpus.text > archive.versions[0].size / 3


def test_no_hash_stands_there_twice() -> None:
    found = [v.sha256 for _, a in ARCHIVES for v in a.versions]
    # News Commentary is in both recipes, as different files
    assert len(found) == len(set(found)) == 16


@pytest.mark.parametrize(("recipe", "corpus"), CORPORA, ids=[f"{n}-{c.id}" for n, c in CORPORA])
def test_members_are_named_for_each_side(recipe: str, corpus: PinnedCorpus) -> None:
    marks = {"de": r"\.de$", "en": r"\.en$|_en\.txt$", "zh": r"\.zh$|_(ch|cn)\.txt$"}
    assert bool(corpus.pairs) != bool(corpus.columns)
    for pair in corpus.pairs:
        assert sorted(pair) == sorted(RECIPES[recipe].languages)
        for code, names in pair.items():
            assert all(re.search(marks[code], name) for name in names)
    if corpus.columns:  # the order of the columns is that of the languages in the file's name
        assert "-".join(corpus.columns) in corpus.archives[0].file


def test_what_the_paper_takes() -> None:
    deen, zhen = RECIPES["wmt19_deen"], RECIPES["wmt19_zhen"]
    common = ["commoncrawl", "europarl", "news_commentary"]
    for answers, last in (([], "rapid2019"), (["rapid=2016"], "rapid2016")):
        job = RecipeJob(deen, locks.chosen(deen, answers), Path(), {})
        assert [corpus.id for corpus in job.corpora] == [*common, last]
    assert sum(deen.sets[name].lines or 0 for name in deen.all) == 28_075
    assert (deen.dev, zhen.dev) == (("newstest2015",), ("newsdev2017", "newstest2017"))
    assert set(deen.sets) == {*deen.dev, *deen.all} and "newstest2018" in deen.sets
    assert set(zhen.sets) == {*zhen.dev, "newstest2019"}
    assert (deen.tables, zhen.tables) == (("table1", "table2", "table3"), ("table1",))
    sizes = {c.id: [v.size for v in c.archives[0].versions] for c in zhen.corpora}
    assert sizes["neu2017"] == [150311715, 148681171]
    assert (
        len(zhen.corpora) == 8 and len(next(c for c in zhen.corpora if c.id == "un").archives) == 2
    )


def test_sets_are_known_to_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for lock in RECIPES.values():
        for known in lock.sets.values():
            assert f"{lock.source}-{lock.target}" in DATASETS[known.sacrebleu].langpairs, known


def changed(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


HASH = "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
URL = '"https://s3-eu-west-1.amazonaws.com/tilde-model/rapid2019.de-en.zip"'
FAULTS = {
    "no TOML": (changed("format = 3", "format ="), "no valid TOML"),
    "format": (changed("format = 3", "format = 9"), "format: 9; this version of nmt reads 3"),
    "short hash": (changed(HASH, HASH[:-1]), r"corpora\[0\].archives\[0\].versions\[0\].sha256: "),
    "large hash": (changed(HASH, HASH.upper()), "expected 64 digits"),
    "no hash": (changed(f', sha256 = "{HASH}"', ""), r"versions\[0\].sha256: missing"),
    "no versions": (changed(f'{{ size = 918311367, sha256 = "{HASH}" }},', ""), "a list of one at"),
    "size": (changed("size = 918311367", "size = 0"), "size: 0; expected an integer above 0"),
    "true": (changed("size = 918311367", "size = true"), "True; expected an integer"),
    "ftp": (changed(URL, '"ftp://x.org/a.zip"'), "'ftp://x.org/a.zip'; expected https"),
    "password": (changed(URL, '"https://me:x@x.org/a.zip"'), "expected https"),
    "no host": (changed(URL, '"https:///a.zip"'), "expected https"),
    "http first": (changed(URL, f'"http://x.org/a.zip", {URL}'), "those of https first"),
    "no url": (changed(URL, ""), "urls: .*expected a list of one at least"),
    "ending": (changed('file = "rapid2019.de-en.zip"', 'file = "rapid2019.de-en.rar"'), "ends in"),
    "kind": (changed('file = "rapid2019.de-en.zip"', 'file = "x.tsv.gz"'), "a .tsv.gz has columns"),
    "file": (changed('file = "rapid2019', 'file = "../rapid2019'), "expected a plain file name"),
    "member": (changed('de = ["rapid2019', 'de = ["../rapid2019'), "expected a name inside"),
    "root": (changed('de = ["rapid2019', 'de = ["/rapid2019'), "expected a name inside"),
    "above": (changed('de = ["rapid2019', 'de = ["a/../rapid2019'), "expected a name inside"),
    "side": (changed('{ de = ["rapid2019', '{ fr = ["rapid2019'), "'fr', 'en'.*expected de and en"),
    "columns": (changed('["de", "en"]', '["de", "fr"]'), "expected de and en"),
    "no columns": (changed('columns = ["de", "en"]\n', ""), "a .tsv.gz has columns"),
    "unknown key": (changed("cap = 9", "kap = 1\ncap = 9"), r"corpora\[0\].kap: no such key"),
    "no cap": (changed("cap = 900_000_000", ""), r"corpora\[0\].cap: missing"),
    "twice": (changed('id = "europarl"', 'id = "commoncrawl"'), "corpus commoncrawl: stands"),
    "choice": (changed('only = "rapid=2019"', 'only = "rapid=20"'), "no such option or"),
    "set": (changed('dev = ["newstest2015"]', 'dev = ["newstest1"]'), "dev: newstest1 is not"),
    "set name": (changed("newstest2008 =", '"../x" ='), "'../x'; expected a plain file name"),
    "language": (changed('target = "en"', 'target = "de"'), "'de' is the source, too"),
    "run": (changed('"R2"]', '3]'), r"runs\[1\]: 3; expected a string"),
    "no table": (changed('["table1", "table2", "table3"]', "[]"), "tables: .*of one at least"),
    "paper": (changed("over_100 = 0.4", 'over_100 = "few"'), "'few'; expected a number"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, tmp_path: Path) -> None:
    change, said = FAULTS[fault]
    path = tmp_path / "x.toml"
    path.write_text(change(locks.path_of("wmt19_deen").read_text("utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        locks.read(path)
    assert caught.value.code == 65
    assert str(caught.value).startswith(f"{path}: ")


def test_no_file_and_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file") as caught:
        locks.read(tmp_path / "x.toml")
    assert caught.value.code == 66
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"no valid TOML: .*utf-8"):
        locks.read(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("word", "said"), [("rapid=2018", "say rapid=2019 or rapid=2016"), ("x=1", "known: rapid")]
)
def test_options_that_are_none(word: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        locks.chosen(RECIPES["wmt19_deen"], [word])
