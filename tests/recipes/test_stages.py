"""From downloads to texts: counted, resumable after any kill, done once, redone when changed."""

import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import IO

import pytest

from nmt.cli.recipe import main as recipe
from nmt.system import atomic
from tests.fast import fast_first
from tests.recipes import miniature
from tests.recipes.conftest import STAGES, Make, Mini, lines

HERE = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parent.parent.parent),
}  # not what is installed
# Runs nmt-recipe, and kills it without warning when a name that ends so is about to be given.
KILLER = """
import os, signal, sys
from nmt.cli.recipe import main
ending = sys.argv[1]
def deadly(real):
    def give(old, new, **more):
        if str(new).endswith(ending):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(old, new, **more)
    return give
os.rename, os.replace = deadly(os.rename), deadly(os.replace)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("name", ["wmt19_deen", "wmt19_zhen"])
def test_a_recipe_gives_its_text(name: str, mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini(name)
    assert recipe(it.words()) == 0
    source = {"wmt19_deen": "de", "wmt19_zhen": "zh"}[name]
    told = json.loads((it.root / "corpus.json").read_bytes())
    wanted: list[tuple[str, str]] = []
    for corpus in told["corpora"]:
        for i in range({"casict2011": 2, "datum2017": 20}.get(corpus["id"], 1)):
            seed = f"{corpus['id']}{i or ''}"
            wanted += miniature.pairs(name, miniature.LINES, seed)
    assert lines(it.root / f"train.{source}") == [pair[0] for pair in wanted]
    assert lines(it.root / "train.en") == [pair[1] for pair in wanted]
    assert told["lines"] == len(wanted) == {"wmt19_deen": 4, "wmt19_zhen": 28}[name] * 60
    assert {c["id"]: c["dropped"] for c in told["corpora"] if c["dropped"]} == (
        {"europarl": 2, "news_commentary": 2} if name == "wmt19_deen" else {"news_commentary": 2}
    )
    out, err = capsys.readouterr()
    assert f"{told['lines']:,}" in out and "Rosendahl et al. (2019): " in out
    assert ("no plain sum" in out) == (name == "wmt19_zhen")
    sets = {"wmt19_deen": ["newstest2015"], "wmt19_zhen": ["newsdev2017", "newstest2017"]}[name]
    dev = [line for each in sets for line in lines(it.folder / "sets" / f"{each}.{source}")]
    assert lines(it.root / f"dev.{source}") == dev
    assert {"id", "file", "sha256", "lines", "dropped", "bytes"} <= set(told["corpora"][0])
    if name == "wmt19_deen":
        assert told["paper"]["lines"] == 6_000_000 and told["paper"]["over_100"] == 0.4
        assert len(lines(it.root / "test" / "newstest_all.de")) == 70
    assert not it.strays()
    assert re.search(r"^in all: .*B in root$", err, re.M)


def test_nothing_is_done_twice(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini()
    assert recipe(it.words()) == 0
    before, asked = it.files(), len(it.server.seen)
    times = {p: p.stat().st_mtime_ns for p in it.root.rglob("*") if p.name != ".lock"}
    capsys.readouterr()
    assert recipe(it.words()) == 0
    out, err = capsys.readouterr()
    assert "Rosendahl et al. (2019): " in out  # what the stages have to say stays the same
    said = [line.split(";")[0] for line in err.split("next:")[0].strip().split("\n")]
    assert said == [f"{stage}: nothing to do" for stage in STAGES]
    assert "nmt-train experiment=table3 scale=wmt19 run=R1,R2 data.root=root seed=1" in err
    assert it.files() == before and len(it.server.seen) == asked
    assert times == {p: p.stat().st_mtime_ns for p in it.root.rglob("*") if p.name != ".lock"}


MADE = [  # and by which stage
    ("downloads/rapid2019.de-en.zip", "download"),
    ("train.en", "corpus"),
    ("test/newstest2012.en", "tests"),
    ("test/newstest_all.en", "tests"),
    ("dev.de", "tests"),
]
DAMAGED = [(*file, how) for how in ("gone", "changed", "shorter") for file in MADE]


@pytest.mark.parametrize(("damaged", "stage", "how"), fast_first(len(MADE) + 2, DAMAGED))
def test_what_was_damaged_is_made_again(
    damaged: str, stage: str, how: str, mini: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    it = mini()
    assert recipe(it.words()) == 0
    before, path = it.files(), it.root / damaged
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if how == "shorter" else data[:-1] + bytes([data[-1] ^ 1]))
    capsys.readouterr()
    code = recipe(it.words())
    if damaged.startswith("downloads") and how != "gone":
        assert code == 65  # the wrong file is set aside, and told
        code = recipe(it.words())
    assert code == 0 and it.files() == before
    err = capsys.readouterr().err
    assert f"{stage}: root/{damaged} " in err
    others = [other for other in STAGES if other != stage]
    assert all(f"{other}: nothing to do" in err for other in others)


def test_a_copied_root_is_as_good(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini()
    assert recipe(it.words()) == 0
    shutil.copytree(it.root, it.folder / "copy", copy_function=shutil.copyfile)  # new times
    capsys.readouterr()
    assert recipe([*it.words(), "--root", "copy"]) == 0
    err = capsys.readouterr().err
    assert all(f"{stage}: nothing to do" in err for stage in STAGES)


def killed(it: Mini, ending: str) -> int:
    words = [sys.executable, "-c", KILLER, ending, *it.words()]
    return subprocess.run(words, capture_output=True, check=False, env=HERE, timeout=60).returncode


@pytest.fixture
def undisturbed(mini: Make) -> tuple[Mini, dict[str, bytes]]:
    """A recipe that was made once, and is not there any more."""
    it = mini()
    assert recipe(it.words()) == 0
    files = it.files()
    shutil.rmtree(it.root)
    return it, files


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("europarl-v9.de-en.tsv.gz", marks=pytest.mark.slow),  # without its name
        pytest.param("state/download.json", marks=pytest.mark.slow),
        "state/corpus.json",
        "train.en",  # one side of the text has its name
        pytest.param("corpus.json", marks=pytest.mark.slow),
        "newstest_all.en",  # one side is there
        pytest.param("state/tests.json", marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed(ending: str, undisturbed: tuple[Mini, dict[str, bytes]]) -> None:
    it, wanted = undisturbed
    assert killed(it, ending) == -signal.SIGKILL
    for name in it.files():  # what has a name is whole
        assert ".nmt-stray-" in name or name.endswith(".part") or it.files()[name] == wanted[name]
    assert recipe(it.words()) == 0
    assert it.files() == wanted and not it.strays()


def test_killed_while_bytes_arrive(mini: Make) -> None:
    it = mini(moods={"europarl-v9.de-en.tsv.gz": ["slow", "right"]}, pause=0.2)
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt.cli.recipe", *it.words()], stderr=subprocess.DEVNULL, env=HERE
    )
    part = it.root / "downloads" / "europarl-v9.de-en.tsv.gz.part"
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size > 100) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    had = part.stat().st_size
    assert 100 < had < len(it.server.files["europarl-v9.de-en.tsv.gz"])
    assert recipe(it.words()) == 0
    asked = [a for path, a in it.server.seen if "europarl" in path]
    assert asked == [None, f"bytes={had}-"]
    assert sum("commoncrawl" in path for path, _ in it.server.seen) == 1
    assert not it.strays()


def test_one_wrong_hash(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini(wrong=True)
    assert recipe(it.words()) == 65
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert "europarl-v9.de-en.tsv.gz.bad" in said and "0" * 64 in said
    folder = it.root / "downloads"
    assert sorted(p.name for p in folder.iterdir()) == [
        "europarl-v9.de-en.tsv.gz.bad",
        "training-parallel-commoncrawl.tgz",
    ]
    assert not (it.root / "text").exists()


def test_no_server_at_all(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()
    monkeypatch.setattr("nmt.recipes.download.time.sleep", lambda _: None)
    it.server.shutdown()
    it.server.server_close()
    assert recipe(it.words()) == 69
    said = capsys.readouterr().err
    for name in it.server.files:
        assert f"{it.server.url}/{name}" in said
    message, *details = said[said.index("nmt: ") :].strip().split("\n")
    assert message == (
        "nmt: download: cannot be downloaded: commoncrawl, europarl, news_commentary, rapid2019; "
        "fetch the files elsewhere and add --local FOLDER, or put them into root/downloads; "
        "the same command then goes on"
    )
    assert len(details) == 5 and all(line.startswith("  http://127.0.0.1") for line in details)
    # ... and then by hand
    for name, data in it.server.files.items():
        (it.folder / "sets" / name).write_bytes(data)
    assert recipe(it.words()) == 0
    assert not list((it.root / "downloads").glob("*.gz"))  # read where they lie


@pytest.mark.parametrize("moods", [["404"], ["short", "404"]], ids="-".join)
def test_the_second_archive_where_the_first_is_gone(
    moods: list[str], mini: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.recipes.download.time.sleep", lambda _: None)
    it = mini(moods={"training-parallel-commoncrawl.tgz": moods})
    assert recipe(it.words()) == 0
    told = json.loads((it.root / "corpus.json").read_bytes())["corpora"][0]
    assert told["file"] == "training-parallel-commoncrawl.zip"
    assert told["lines"] == miniature.LINES
    assert not it.strays()


def test_a_mirror_serves_all(mini: Make) -> None:
    it = mini()
    miniature.make(it.name, it.folder, "http://127.0.0.1:9")  # where nobody listens
    assert recipe([*it.words("download"), "--mirror", f"{it.server.url}/wmt19/"]) == 0
    assert [path.startswith("/wmt19/") for path, _ in it.server.seen] == [True] * 4


def test_another_lock_file_changes_the_text(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini()
    assert recipe(it.words()) == 0
    path, first = it.folder / "wmt19_deen.toml", it.files()["train.de"]
    lock = path.read_text("utf-8")
    fewer = tomllib.loads(lock)
    fewer["corpora"].pop()
    path.write_text("".join(f"{k} = {miniature.inline(v)}\n" for k, v in fewer.items()), "utf-8")
    capsys.readouterr()
    assert recipe(it.words("corpus")) == 66
    said = capsys.readouterr().err
    assert "root/state/download.json: the stage download ran with another lock file" in said
    assert not it.strays() and it.files()["train.de"] == first
    assert recipe(it.words()) == 0
    err = capsys.readouterr().err
    assert "download: other accepted\n" in err and "corpus: other archives, members\n" in err
    other = it.files()["train.de"]
    assert first.startswith(other) and first != other
    path.write_text(lock, "utf-8")
    assert recipe(it.words()) == 0
    assert it.files()["train.de"] == first
    assert len(it.server.seen) == 4  # what is here already is not downloaded again


def test_stages_out_of_order(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini()
    assert recipe(it.words("corpus")) == 66
    said = capsys.readouterr().err
    assert "root/state/download.json is not there; the stage download makes it" in said
    assert recipe(it.words("download")) == 0
    assert recipe(it.words("corpus")) == 0


def test_a_full_disk_is_told_before(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()
    real = shutil.disk_usage(it.folder)
    monkeypatch.setattr("shutil.disk_usage", lambda _: real._replace(free=1000))
    assert recipe(it.words()) == 74
    assert "root: takes about" in capsys.readouterr().err
    assert not it.server.seen


def test_a_disk_that_is_full_midway_is_named(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()

    def full(member: IO[bytes], out: Path) -> int:
        raise OSError(errno.EFBIG, "File too large")  # as `write` does: without a name

    with monkeypatch.context() as patched:
        patched.setattr("nmt.recipes.archive._copy", full)
        assert recipe(it.words()) == 74
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert said == (
        "nmt: root: File too large; mend that or make room, then the same command goes on"
    )
    assert recipe(it.words()) == 0


def test_what_a_killed_one_left_is_free(mini: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = mini()
    stray = atomic.temporary_of(it.root / "text")
    stray.mkdir(parents=True)
    real = shutil.disk_usage(it.folder)
    frees = {True: real._replace(free=1000), False: real._replace(free=10**12)}
    monkeypatch.setattr("shutil.disk_usage", lambda _: frees[stray.exists()])
    assert recipe(it.words("download", "--dry-run")) == 74  # which removes nothing
    assert recipe(it.words("download")) == 0


def test_two_at_once(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    from filelock import FileLock

    it = mini()
    it.root.mkdir()
    with FileLock(it.root / ".lock"):
        assert recipe(it.words()) == 73
    assert "in use by another nmt-recipe" in capsys.readouterr().err
    assert recipe(it.words("download")) == 0


def test_a_damaged_ledger_costs_only_time(mini: Make) -> None:
    it = mini()
    assert recipe(it.words()) == 0
    before = it.files()
    for path in (it.root / "state").iterdir():
        path.write_bytes(b"{")
    asked = len(it.server.seen)
    assert recipe(it.words()) == 0
    assert it.files() == before and len(it.server.seen) == asked


def test_the_borders_of_documents_are_in_the_archives(mini: Make) -> None:
    """Else nothing above would show that they are dropped."""
    it = mini("wmt19_zhen")
    rows = gzip.decompress(it.server.files["news-commentary-v14.en-zh.tsv.gz"]).decode().split("\n")
    assert "" in rows[:-1] and "\t" in rows
    first = miniature.pairs("wmt19_zhen", miniature.LINES, "news_commentary")[0]
    assert rows[0] == f"{first[1]}\t{first[0]}"  # English first
