"""nmt-recipe as a command: its words, and the whole way from archives to scores."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.cli.recipe import main as recipe
from nmt.cli.recipe import understood
from nmt.cli.train import main as train
from nmt.data.report import split_report, tally_of
from nmt.experiments.processes import LoggedCommand
from nmt.experiments.recipe import check, forecasts, plan
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import entries_of
from nmt.overrides.quoting import quoted
from nmt.recipes import estimate, loss, wmtsets
from nmt.recipes.lock import names
from tests.in_process import run_all, start_by
from tests.recipes import miniature
from tests.recipes.server import Server, serving

RECIPES = ["wmt19_deen", "wmt19_zhen"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wmt19_deen", "downlod"], "downlod: no such stage; there are download, corpus"),
        (["wmt19_deen", "--option", "rapid=2020"], "say rapid=2019 or rapid=2016"),
        (["wmt19_zhen", "--option", "rapid=2016"], "wmt19_zhen has no such option; known: none"),
        (["wmt19_deen", "encoding=lstm"], "encoding=lstm: say it with --encodings"),
        (["wmt19_deen", "data.root=x"], "data.root=x: say it with --root"),
        (["wmt19_deen", "--mirror", "file:///x"], "--mirror file:///x: expected https://..."),
        (["wmt19_deen", "--max-days", "0"], "argument --max-days: "),
        (["wmt19_deen", "runs=x"], "runs=x: say it with --runs"),
        (["wmt19_deen", "run=R4"], "run=R4: say it with --encodings"),
        (["wmt19_deen", "scale=toy"], "scale=toy: say it with nmt-train"),
        (["wmt19_deen", "train", "model.dmi=3", "--dry-run"], "model.dmi"),
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
    for corpus in understood([name])[0].job.lock.corpora:
        for archive in corpus.archives:
            assert all(url in out for url in archive.urls)
            assert all(v.sha256 in out for v in archive.versions)
    assert ("rapid=2019|2016" in out) == (name == "wmt19_deen")


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run_touches_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe([name, "--dry-run"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    said = dict(line.split(": ", 1) for line in lines)
    stages = ["download", "corpus", "tests", "prepare", "train", "score"]
    root, kept = f"  data/{name}", f"  {wmtsets.sacrebleu_directory()}"
    assert list(said) == [*stages, "in all", root, "  runs", kept]
    exact = {"wmt19_deen": "1.3 GB", "wmt19_zhen": "2.1 GB"}[name]
    assert f"about {exact} of disk" in said["download"]
    assert said["corpus"].startswith("to do; about ")
    assert said["  runs"].endswith(" GB, not below --root") and said[kept].startswith(
        "20.0 MB, not"
    )
    assert not list(tmp_path.iterdir())


def test_training_for_months_is_refused_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=10**15)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    words = ["wmt19_deen", "--encodings", "relative", "trainer=cpu"]
    assert recipe(words) == 2
    err = capsys.readouterr().err
    days = re.search(r"^nmt: train: (\d+) days by the estimate .* --max-days 14; .*", err, re.M)
    assert days is not None and int(days[1]) > 300
    assert err.startswith("in all: ") and not list(tmp_path.iterdir())
    request = understood(words)[0]._replace(max_days=2 * int(days[1]))
    foreseen = forecasts(request, plan(request))
    check(request, foreseen)  # asked for
    few = [f for f in foreseen if f.stage != "train"]
    check(request._replace(max_days=1), few)  # of training alone


@pytest.mark.parametrize("name", RECIPES)
def test_the_runs_of_the_lock_file_are_the_papers(name: str) -> None:
    job = understood([name])[0].job
    runs = {e: experiment_of(["scale=wmt19", f"run={r}"]) for e, r in job.lock.runs.items()}
    for encoding, run in runs.items():
        assert list(run.settings.encoding) == list(entries_of(encoding))
        assert run.settings.data.name == name and run.settings.data.max_length == 100
    assert set(job.lock.encodings) <= set(runs)
    assert job.lock.other_run == job.lock.runs["relative"]  # it has no keys of its encoding
    settings = runs["absolute"].settings
    assert settings.encoding["absolute"]["at"] == {"index": {"start": 1}}  # as in the paper
    assert settings.data.cache == f"data/{name}/prepared"
    assert (settings.data.source_language, "en") == job.lock.languages
    assert settings.model.dim == 512 and settings.optim.kind == "plateau"
    if name == "wmt19_deen":
        assert settings.segmenter.kind == "bpe" and settings.segmenter.merges == 50_000
    else:
        assert settings.segmenter.vocabulary_size == 32_000
        assert not settings.segmenter.shared_vocabulary
        assert settings.segmenter.training_lines == 4_000_000


def test_lock_files_travel_with_the_package() -> None:
    """As hatch takes all files below nmt/, they must lie there, and no rule of git hide them."""
    assert names() == RECIPES
    root = Path(__file__).parent.parent.parent
    files = [f"nmt/recipes/{name}.toml" for name in RECIPES]
    hidden = subprocess.run(
        ["git", "check-ignore", *files], cwd=root, capture_output=True, text=True
    )
    assert hidden.stdout == ""


def test_the_loss_is_counted_as_in_the_paper() -> None:
    """A pair is dropped if a side has more than 100 pieces; a limit of 75 would drop more."""
    source = np.array([10, 100, 101, 3, 75, 76, 20, 5])
    target = np.array([12, 90, 5, 140, 75, 20, 77, 6])
    outcome = np.where(np.maximum(source, target) > 100, 2, 0)
    told = {"train": split_report(tally_of(source, target, outcome), {}, np.zeros(2, np.int64))}

    class Store:
        source_lengths = source[outcome == 0]
        target_lengths = target[outcome == 0]

    paper = understood(["wmt19_deen"])[0].job.lock.paper
    text = loss.loss(Store(), told, 100, paper)  # type: ignore[arg-type]
    assert re.search(r"^pairs read +8 +6,000,000$", text, re.M)
    assert "2 (25.00 %)         0.4 %" in text and "3 (37.50 %)         1.2 %" in text
    other = loss.loss(Store(), told, 60, paper)  # type: ignore[arg-type]
    assert "0.4 %" not in other and "76" not in other


@pytest.mark.parametrize("name", RECIPES)
def test_estimates_grow_with_what_is_to_be_done(name: str) -> None:
    job = understood([name])[0].job
    base = experiment_of([f"run={job.lock.other_run}", "scale=wmt19"]).settings
    train = estimate.of_train(1e9, base, 10**8, gpu=True)
    small = estimate.of_train(1e9, base, 10**7, gpu=True)
    assert 4e9 < train.disk == 10 * small.disk
    assert estimate.of_train(1e9, base, 10**8, gpu=False).seconds > 100 * train.seconds
    assert estimate.of_prepare(1e9, base, 1).seconds > 3 * estimate.of_prepare(1e9, base, 4).seconds
    score = [estimate.of_score(lines, base, 10**8, True).seconds for lines in (2000, 20_000)]
    assert 9 * score[0] < score[1]


def test_estimates_count_the_parameters_of_encodings(tmp_path: Path) -> None:
    import torch

    from nmt import build

    def disk(encoding: str) -> float:
        words = ["wmt19_deen", "train", "--encodings", encoding, "--root", str(tmp_path)]
        request, _ = understood([*words, "model=tiny", "segmenter.merges=60"])
        (train,) = forecasts(request, plan(request))
        return train.cost.disk

    settings = experiment_of(["encoding=lstm", "model=tiny", "segmenter.merges=60"]).settings
    with torch.device("meta"):
        model = build.transformer(settings, 8, 8)
    added = sum(p.numel() for site in model.sites.values() for p in site.parameters())
    assert added > 100_000
    kept = 12 * (settings.trainer.keep_checkpoints + 2)  # bytes of a weight in all checkpoints
    assert disk("lstm") - disk("absolute") == kept * added


@pytest.mark.parametrize(
    ("count", "text"), [(3, "3 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e12, "3.0 TB")]
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert estimate.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (90, "90 s"), (600, "10 minutes"), (7200, "2 hours"), (864000, "10 days")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert estimate.duration(seconds) == text


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An address of archives; what is trained, is trained in this process."""
    monkeypatch.chdir(tmp_path)
    start_by(monkeypatch)
    with serving(Server({})) as server:
        yield server


@pytest.mark.parametrize("name", RECIPES)
def test_from_archives_to_scores(
    name: str, served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.files = miniature.make(name, tmp_path, served.url)
    words = [name, *miniature.words(name, tmp_path)]
    assert recipe(words) == 0
    out, err = capsys.readouterr()
    counted = {"wmt19_deen": 240, "wmt19_zhen": 1680}[name]
    share = {"wmt19_deen": "0.4 %", "wmt19_zhen": "0.2 %"}[name]
    assert re.search(rf"^pairs read +{counted:,} +\d", out, re.M)
    long = {"wmt19_deen": r"4 \(1.67 %\)", "wmt19_zhen": r"29 \(1.73 %\)"}[name]  # in so few merges
    dropped = rf"^over 100 pieces on a side, dropped +{long} +{share}$"
    assert re.search(dropped, out, re.M)
    between = re.search(r"^76 to 100 on the longer side, kept +(\d+)", out, re.M)
    assert between and int(between[1]) > 0
    for stage in ("prepare", "train", "score"):
        assert f"{stage}: " in err
    where = tmp_path / "runs" / f"table-{name}"
    sets = {"table1": "newstest2018", "table2": "newstest_all", "table3": "concat_seq"}
    sets = sets if name == RECIPES[0] else {"table1": "newstest2019"}
    for table, test in sets.items():
        told = json.loads((where / f"{table}.json").read_bytes())
        assert [system["label"] for system in told["systems"]] == [
            *("absolute, max 100", "relative, max 100"),
        ]
        assert told["tables"][0]["test"] == test
        assert (where / f"{table}.txt").read_text(encoding="utf-8") in out
        assert told["command"].startswith(f"nmt-recipe {name} --lock")
    assert ("76-100" in out) == ("table2" in sets)

    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert recipe(words) == 0  # nothing again, the tables apart
    again, err = capsys.readouterr()
    for stage in ("download", "corpus", "tests", "prepare", "train"):
        assert f"{stage}: nothing to do" in err
    assert again.endswith(out[out.index("Table 1") :]) and "in all" not in err
    changed = {p for p, t in before.items() if p.stat().st_mtime_ns != t}
    assert {p.stem for p in changed} <= {".lock", *sets}

    # another corpus, and the runs of the first are not taken for runs on it
    if name == "wmt19_deen":
        stages = ["download", "corpus", "prepare", "train"]
        assert recipe([*words, *stages, "--option", "rapid=2016"]) == 65
        assert "trained on other data" in capsys.readouterr().err


def test_late_stages_by_themselves(
    served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "wmt19_deen"
    served.files = miniature.make(name, tmp_path, served.url)
    words = [name, *miniature.words(name, tmp_path), "--encodings", "alibi"]
    for stage, said in (
        ("prepare", "the stage corpus makes it"),
        ("train", "the stage corpus makes it"),
        ("score", "alibi-max100-seed1: not trained yet; the stage train does that"),
    ):
        assert recipe([*words, stage]) == 66
        assert said in capsys.readouterr().err
    assert recipe([*words, "download", "corpus", "tests"]) == 0
    assert recipe([*words, "train"]) == 66
    said = "not prepared with these overrides (not done yet); the stage prepare does that"
    assert said in capsys.readouterr().err
    assert recipe([*words, "prepare"]) == 0
    others = [word.replace("segmenter.merges=60", "segmenter.merges=70") for word in words]
    assert recipe([*others, "train"]) == 66
    said = "not prepared with these overrides (other segmenter); the stage prepare does that"
    assert said in capsys.readouterr().err
    assert recipe([*words, "train"]) == 0
    made = tmp_path / "runs" / "table-wmt19_deen" / "alibi-max100-seed1"
    assert (made / "config.json").exists()


def test_one_run_serves_the_recipe_and_the_tables(
    served: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever comes first, the second trains nothing: the same settings and directories."""
    served.files = miniature.make("wmt19_deen", tmp_path, served.url)
    words = ["wmt19_deen", *miniature.words("wmt19_deen", tmp_path)]
    assert recipe([*words, *("download", "corpus", "tests", "prepare")]) == 0
    keys = [w for w in words if "=" in w and not w.startswith("-")]
    place = [f"data.root={tmp_path / 'root'}", f"runs={tmp_path / 'runs'}", "seed=1"]
    single = [w for w in keys if not w.startswith(("samples", "attention"))]
    assert train(["run=R2", "scale=wmt19", *single, *place]) == 0
    capsys.readouterr()
    assert recipe([*words, "train"]) == 0
    out, err = capsys.readouterr()
    runs = tmp_path / "runs" / "table-wmt19_deen"
    assert f"train: nothing to do for {runs / 'relative-max100-seed1'}" in err
    assert out == f"{runs / 'absolute-max100-seed1'}\n"

    def translating(commands: Sequence[LoggedCommand], *rest: Any, **more: Any) -> dict[str, int]:
        assert {command.module for command in commands} == {"translate"}
        return run_all(commands, *rest, **more)

    start_by(monkeypatch, translating)
    assert train(["experiment=table2", "run=R1,R2", *keys, *place]) == 0
    out, err = capsys.readouterr()
    assert "2 runs, 2 of them finished" in err and "\nrelative, max 100 " in out


def test_quoted_words_are_read_back(tmp_path: Path) -> None:
    for odd in ("a b", "it's", "a,b", "x=y", "[z]", "plain/path-1.2"):
        words = ["data=wmt19_deen", f"data.root={quoted(tmp_path / odd)}"]
        assert experiment_of(words).settings.data.root == str(tmp_path / odd)  # type: ignore[attr-defined]


def test_help_is_quick() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "nmt.cli.recipe", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
    assert "wmt19_deen" in done.stdout and "STAGE" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.split("\n")}
    assert "nmt.recipes.lock" in loaded and not loaded & {"torch", "sacrebleu", "hydra"}
