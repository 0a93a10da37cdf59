"""From downloads to texts: counted, resumable after any kill, done once, redone when changed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from scripts import archives
from scripts.wmt19 import STAGES, main
from tests.pages import ROOT
from tests.scripts.wmt19 import miniature
from tests.scripts.wmt19.conftest import Make, Mini, lines

HERE = {**os.environ, "PYTHONPATH": str(ROOT)}  # not what is installed
# Runs the script, and kills it without warning when a name that ends so is about to be given.
KILLER = """
import os, signal, sys
from scripts.wmt19 import main
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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "PAUSE", 0.01)


@pytest.mark.parametrize("name", ["deen", "zhen"])
def test_a_recipe_gives_its_text(name: str, mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini(name)
    assert main(it.words()) == 0
    source = {"deen": "de", "zhen": "zh"}[name]
    counts = json.loads((it.root / "corpus.json").read_bytes())
    wanted: list[tuple[str, str]] = []
    for corpus in counts["corpora"]:
        for i in range({"casict2011": 2, "datum2017": 20}.get(corpus["id"], 1)):
            wanted += miniature.pairs(name, miniature.LINES, f"{corpus['id']}{i or ''}")
    assert lines(it.root / f"train.{source}") == [pair[0] for pair in wanted]
    assert lines(it.root / "train.en") == [pair[1] for pair in wanted]
    assert counts["lines"] == len(wanted) == {"deen": 4, "zhen": 28}[name] * 60
    assert {c["id"]: c["dropped"] for c in counts["corpora"] if c["dropped"]} == (
        {"europarl": 2, "news_commentary": 2} if name == "deen" else {"news_commentary": 2}
    )
    assert {"id", "file", "sha256", "lines", "stated", "bytes"} <= set(counts["corpora"][0])
    sets = {"deen": ["newstest2015"], "zhen": ["newsdev2017", "newstest2017"]}[name]
    dev = [line for each in sets for line in lines(it.folder / "sets" / f"{each}.{source}")]
    assert lines(it.root / f"dev.{source}") == dev
    if name == "deen":
        assert len(lines(it.root / "test" / "newstest_all.de")) == 70
    assert not it.strays()
    err = capsys.readouterr().err
    assert re.search(r"^in all: .*B in root$", err, re.M)
    run = {"deen": "R1,R2", "zhen": "R9,R10"}[name]
    assert f"experiment=table1 scale=wmt19 run={run} seed=1 data.root=root\n" in err


def stages_run(err: str) -> set[str]:
    return {stage for stage in STAGES if f"{stage}: to do" in err}


def test_nothing_is_done_twice(mini: Make, capsys: pytest.CaptureFixture[str]) -> None:
    it = mini()
    assert main(it.words()) == 0
    shutil.rmtree(it.root / "downloads")  # the text is finished without them
    before, requests = it.files(), len(it.server.seen)
    times = {name: (it.root / name).stat().st_mtime_ns for name in before}
    assert stages_run(capsys.readouterr().err) == {*STAGES}
    assert main([f"{it.name}.toml", "--root", "root"]) == 0  # nor without --local
    assert not stages_run(capsys.readouterr().err)
    assert it.files() == before and len(it.server.seen) == requests
    assert times == {name: (it.root / name).stat().st_mtime_ns for name in before}
    shutil.copytree(it.root, it.folder / "copy")  # and may be moved
    assert main([*it.words(), "--root", "copy"]) == 0
    assert not stages_run(capsys.readouterr().err)


DAMAGED = [  # which file, and by which stage it is made
    ("train.en", "corpus", "gone"),
    ("test/newstest_all.en", "tests", "changed"),
    ("corpus.json", "corpus", "shorter"),
]


@pytest.mark.parametrize(("damaged", "stage", "how"), DAMAGED)
def test_what_was_damaged_is_made_again(
    damaged: str, stage: str, how: str, mini: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    it = mini()
    assert main(it.words()) == 0
    before, requests, path = it.files(), len(it.server.seen), it.root / damaged
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        end = data[:-2] if how == "shorter" else data[:-2] + bytes([data[-2] ^ 1, data[-1]])
        path.write_bytes(end)
    capsys.readouterr()
    assert main(it.words()) == 0
    assert it.files() == before and len(it.server.seen) == requests
    assert stages_run(capsys.readouterr().err) == {stage}


def killed(it: Mini, ending: str) -> int:
    words = [sys.executable, "-c", KILLER, ending, *it.words()]
    return subprocess.run(words, capture_output=True, check=False, env=HERE, timeout=60).returncode


@pytest.mark.parametrize(
    "ending",
    [
        "train.en",  # one side of the text has its name
        "newstest_all.en",  # one side is there
    ],
)
def test_killed_and_resumed(ending: str, mini: Make) -> None:
    it = mini()
    assert main(it.words()) == 0
    wanted = it.files()
    shutil.rmtree(it.root)
    assert killed(it, ending) == -signal.SIGKILL
    for name in it.files():  # what has a name is whole
        assert ".nmt-stray-" in name or it.files()[name] == wanted[name]
    assert main(it.words()) == 0
    assert it.files() == wanted and not it.strays()
    assert len(it.server.seen) == 8  # nothing was downloaded again


@pytest.mark.parametrize(
    ("place", "words"), [("root/downloads", []), ("sets", ["--dry-run"]), ("sets", ["corpus"])]
)
def test_a_wrong_file_that_is_there(
    place: str, words: Sequence[str], mini: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    it = mini()
    path = it.folder / place / "rapid2019.de-en.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = it.server.files[path.name]
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert main(it.words(*words)) == 65
    assert f"{place}/{path.name}: SHA-256" in capsys.readouterr().err
    assert not it.server.seen and path.exists()


def test_a_disk_that_is_too_small_is_refused_before(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = mini()
    real, needed = shutil.disk_usage(it.folder), 4e6 + 1e6 + 10e6  # with the largest text twice
    part = it.root / "downloads" / "rapid2019.de-en.zip.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(1000))
    needed -= 1000  # of a download that was stopped
    needed += sum(len(it.server.files[name]) for name in it.server.files if "crawl.zip" not in name)
    for free, code in ((1.1 * needed - 100, 74), (1.1 * needed + 100, 0)):
        usage = real._replace(free=int(free))
        monkeypatch.setattr("shutil.disk_usage", lambda _, usage=usage: usage)
        assert main(it.words("--dry-run")) == main(it.words()) == code
        assert ("root: takes about" in capsys.readouterr().err) == bool(code)
        assert bool(it.server.seen) != bool(code)
