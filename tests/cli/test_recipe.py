"""nmt-recipe as a command: its words, and the whole way from archives to scores."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from nmt.cli.recipe import main as recipe
from nmt.cli.recipe import parse_arguments
from nmt.config.compose import experiment_of
from nmt.config.hydra_conf import lines_of, parse
from nmt.config.sweeps import sweep_of
from nmt.recipes import disk
from nmt.recipes.lock import names
from nmt.recipes.recipe import next_commands
from tests.recipes import miniature

RECIPES = ["wmt19_deen", "wmt19_zhen"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wmt19_deen", "downlod"], "downlod: no such stage; there are download, corpus"),
        (["wmt19_deen", "--mirror", "file:///x"], "--mirror file:///x: expected https://..."),
        (["wmt19_deen", "seed=1"], "seed=1: no such stage; there are download"),
    ],
)
def test_wrong_words(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert recipe(words) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_lock_file_of_another_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    miniature.make("wmt19_zhen", tmp_path, "http://127.0.0.1:9")
    assert recipe(["wmt19_deen", "--lock", str(tmp_path / "wmt19_zhen.toml")]) == 2
    assert "is a lock file of wmt19_zhen, not of wmt19_deen" in capsys.readouterr().err
    assert recipe(["wmt19_deen", "--local", str(tmp_path / "no")]) == 66


@pytest.mark.parametrize("name", RECIPES)
def test_list_shows_what_to_fetch(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert recipe([name, "--list"]) == 0
    out = capsys.readouterr().out
    for corpus in parse_arguments([name]).job.lock.corpora:
        for archive in corpus.archives:
            assert all(url in out for url in archive.urls)
            assert all(v.sha256 in out for v in archive.versions)
    assert f"in all: {4 if name == 'wmt19_deen' else 8} files, " in out


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run_touches_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe([name, "--dry-run"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    said = dict(line.split(": ", 1) for line in lines)
    assert list(said) == ["download", "corpus", "tests", "in all"]
    exact = {"wmt19_deen": "1.3 GB", "wmt19_zhen": "2.1 GB"}[name]
    assert f"about {exact} of disk" in said["download"]
    assert said["corpus"].startswith("to do; about ")
    assert said["in all"].endswith(f" GB in data/{name}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", RECIPES)
def test_the_runs_of_the_lock_file_are_the_papers(name: str) -> None:
    """Those that tests/cli/test_runs.py looks at."""
    job = parse_arguments([name]).job
    for run, encoding in zip(job.lock.runs, ("absolute", "relative"), strict=True):
        settings = experiment_of(["scale=wmt19", f"run={run}"]).settings
        assert list(settings.encoding) == [encoding] and settings.data.name == name
    assert settings.data.cache == f"data/{name}/prepared"
    assert (settings.data.source_language, "en") == job.lock.languages


def test_lock_files_travel_with_the_package() -> None:
    """As hatch takes all files below nmt/, they must lie there, and no rule of git hide them."""
    assert names() == RECIPES
    root = Path(__file__).parent.parent.parent
    files = [f"nmt/recipes/{name}.toml" for name in RECIPES]
    hidden = subprocess.run(
        ["git", "check-ignore", *files], cwd=root, capture_output=True, text=True
    )
    assert hidden.stdout == ""


@pytest.mark.parametrize(
    ("count", "text"), [(3, "3 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e12, "3.0 TB")]
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert disk.size(count) == text


@pytest.mark.parametrize("name", RECIPES)
def test_the_commands_that_follow_are_those_of_the_tables(name: str, tmp_path: Path) -> None:
    """Their runs are trained on the text of the recipe, and tested on its test sets."""
    job = parse_arguments([name, "--root", str(tmp_path)]).job
    for command, *words in next_commands(job):
        assert command == "nmt-train"
        sweep = sweep_of(parse(words))
        assert sweep is not None and sweep.table and len(sweep.jobs) == len(job.lock.runs) == 2
        data = experiment_of(lines_of(sweep.jobs[0])).settings.data
        assert data.train_source == f"{tmp_path}/train.{job.lock.source}"


@pytest.mark.parametrize("name", RECIPES)
def test_make_continues_with_the_tables_unless_it_only_shows(name: str) -> None:
    def made(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-n", "-o", ".venv/installed", name.replace("_", "-"), *words]
        root, here = Path(__file__).parent.parent.parent, {**os.environ, "ROOT": "elsewhere"}
        return subprocess.run(command, cwd=root, capture_output=True, text=True, env=here)

    def lines(*words: str) -> str:
        return made(*words).stdout

    ours = [
        w for words in next_commands(parse_arguments([name]).job) for w in words if "data." not in w
    ]
    assert set(re.findall(r"table\d", lines())) == set(re.findall(r"table\d", " ".join(ours)))
    assert {w for w in ours if w.startswith(("scale=", "run="))} <= set(lines().split())
    assert lines("RECIPE=--local x").count("data.root") == 0
    tables = lines("RECIPE=--local x", "ROOT=/disk/x", "TRAIN=tau=8")
    assert f"nmt-recipe {name} --root /disk/x --local x\n" in tables
    assert "seed=1 runs=runs data.root=/disk/x tau=8" in tables
    for only in ("--dry-run --local x", "-h", "tests", "download corpus"):
        shown = lines(f"RECIPE={only}")
        assert "nmt-recipe" in shown and "nmt-train" not in shown
    for root in ("--root x", "--root=x"):  # training would read another one
        refused = made(f"RECIPE=tests {root}")
        assert refused.returncode == 2 and "give ROOT=DIR" in refused.stderr and not refused.stdout
