"""The two recipes: each archive is pinned, and they are what the paper takes."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nmt.errors import UserError
from scripts.archives import Archive
from scripts.wmt19 import RECIPES, CorpusSource, read_recipe

READ = {name: read_recipe(path) for name, path in RECIPES.items()}
CORPORA = [(name, c) for name, recipe in READ.items() for c in recipe.corpora]
ARCHIVES = [(c, a) for _, c in CORPORA for a in c.archives]


@pytest.mark.parametrize(("corpus", "archive"), ARCHIVES, ids=[a.file for _, a in ARCHIVES])
def test_each_archive_is_pinned(corpus: CorpusSource, archive: Archive) -> None:
    assert archive.urls[0].startswith("https://")
    for url in archive.urls:
        assert urlsplit(url).path.endswith(f"/{archive.file}")
    assert all("https" + u.removeprefix("http") in archive.urls
               for u in archive.urls if u.startswith("http:"))  # fmt: skip
    for version in archive.versions:
        assert re.fullmatch("[0-9a-f]{64}", version.sha256)
        assert 3e7 < version.size < 1.5e9
        assert len(set(version.sha256)) > 8  # no placeholder
    assert corpus.text_mb * 1e6 > archive.versions[0].size / 3


def test_what_the_paper_takes() -> None:
    deen, zhen = READ["deen"], READ["zhen"]
    corpora = ["commoncrawl", "europarl", "news_commentary", "rapid2019"]
    assert [corpus.id for corpus in deen.corpora] == corpora
    whole = deen.joined["test/newstest_all"]
    assert sum(deen.sets[name].lines or 0 for name in whole) == 28_075
    assert deen.joined["dev"] == ["newstest2015"] and "newstest2018" in deen.sets
    assert zhen.joined == {"dev": ["newsdev2017", "newstest2017"]}
    assert set(deen.sets) == {"newstest2015", *whole}
    assert set(zhen.sets) == {*zhen.joined["dev"], "newstest2019"}
    sizes = {c.id: [v.size for v in c.archives[0].versions] for c in zhen.corpora}
    assert sizes["neu2017"] == [150311715, 148681171] and len(sizes) == 8
    assert len(next(c for c in zhen.corpora if c.id == "un").archives) == 2


def test_sets_are_known_to_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for recipe in READ.values():
        for known in recipe.sets.values():
            dataset = DATASETS[known.sacrebleu]
            assert "-".join(recipe.languages) in dataset.langpairs, known
            assert len(dataset.md5 or ()) == len(dataset.data or ()) > 0  # of what it extracts


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [("name =", "name", ""), ("title =", "titel =", "titel"), ("size = 9", 'size = "9"', "")],
)
def test_other_files_are_refused(old: str, new: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(RECIPES["deen"].read_text("utf-8").replace(old, new), "latin1")
    with pytest.raises(UserError, match=f"x.toml: no valid recipe: {key}") as caught:
        read_recipe(path)
    assert caught.value.code == 65
