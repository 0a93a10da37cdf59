"""python -m scripts.wmt19 and make wmt19-...: what they print, and the commands that follow."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from nmt.config.compose import experiment_of
from nmt.config.hydra_conf import lines_of, parse, sweep_of
from scripts.wmt19 import RECIPES, main, read_recipe
from tests.pages import ROOT


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2),
        (["deen", "downlod"], 2),
        (["dene"], 65),
        (["deen", "--local", "no"], 66),
        (["deen", "--root", "file"], 73),
    ],
)
def test_wrong_arguments(
    words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(words) == code
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and (not words or words[-1] in err)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run_touches_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--dry-run", "--root", str(tmp_path / "x")]) == 0
    lines = capsys.readouterr().out
    stages = dict(line.split(": ", 1) for line in lines.strip().split("\n"))
    assert list(stages) == ["download", "corpus", "tests", "in all"]
    assert {"deen": "1.3 GB", "zhen": "2.1 GB"}[name] in stages["download"]
    assert stages["in all"] == f"{ {'deen': '3.7', 'zhen': '13.2'}[name] } GB in {tmp_path / 'x'}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", RECIPES)
def test_the_commands_that_follow_are_those_of_the_tables(name: str, tmp_path: Path) -> None:
    """Their runs, the paper's, are trained on the text of the recipe."""
    recipe = read_recipe(RECIPES[name])
    for line in recipe.commands:
        command, *words = [*line.split(), f"data.root={tmp_path}"]
        assert command == "nmt-train"
        sweep = sweep_of(parse(words))
        assert sweep is not None and sweep.table and len(sweep.jobs) == 2
        settings = experiment_of(lines_of(sweep.jobs[1])).settings
        assert list(settings.encoding) == ["relative"] and settings.data.name == recipe.name
        assert settings.data.train_source == f"{tmp_path}/train.{recipe.languages[0]}"
        assert settings.data.cache == f"{tmp_path}/prepared"
        assert f"{tmp_path}/test/" in str(settings.data.test_target)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-n", "-o", ".venv/installed", "wmt19-deen", *words]
    here = {**os.environ, "ROOT": "elsewhere"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=here)


def test_make_continues_with_the_tables_unless_it_only_shows() -> None:
    listed = [line.split()[1] for line in read_recipe(RECIPES["deen"]).commands]
    tables = make("RECIPE=--local x", "ROOT=/disk/x", "TRAIN=tau=8").stdout
    assert set(re.findall(r"table\d", tables)) == set(re.findall(r"table\d", " ".join(listed)))
    assert "-m scripts.wmt19 deen --root /disk/x --local x\n" in tables
    assert "seed=1 runs=runs data.root=/disk/x tau=8" in tables
    shown = make("RECIPE=--dry-run --local x").stdout
    assert "scripts.wmt19" in shown and "nmt-train" not in shown
    refused = make("RECIPE=tests --root=x")  # training would read another one
    assert refused.returncode == 2 and "give ROOT=DIR" in refused.stderr and not refused.stdout
