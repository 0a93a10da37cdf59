"""nmt-recipe as a command: its words, and the whole way from archives to scores."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nmt.cli.recipe import main as recipe
from nmt.cli.recipe import understood
from nmt.data.report import split_report, tally_of
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import quoted
from nmt.recipes import estimate, loss
from nmt.recipes.lock import names
from tests.in_process import start_by
from tests.recipes import miniature
from tests.recipes.server import Server, serving

RECIPES = ["wmt19_deen", "wmt19_zhen"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wmt19_deen", "downlod"], "downlod: no such stage; there are download, extract"),
        (["wmt19_deen", "--option", "rapid=2020"], "say rapid=2019 or rapid=2016"),
        (["wmt19_zhen", "--option", "rapid=2016"], "wmt19_zhen has no such option; known: none"),
        (["wmt19_deen", "encoding=lstm"], "encoding=lstm: say it with --encodings"),
        (["wmt19_deen", "data.root=x"], "data.root=x: say it with --root"),
        (["wmt19_deen", "runs=x"], "runs=x: say it with --runs"),
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
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.strip().split("\n"))
    assert list(said) == ["download", "extract", "corpus", "tests", "prepare", "train", "score"]
    exact = {"wmt19_deen": "1.3 GB", "wmt19_zhen": "2.1 GB"}[name]
    assert f"about {exact} of disk" in said["download"]
    assert said["extract"] == "waits for the stage before it"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", RECIPES)
def test_the_words_of_the_lock_file_are_words_of_nmt_train(name: str) -> None:
    request, _ = understood([name])
    settings = experiment_of([*request.job.lock.words, *request.job.lock.training]).settings
    assert settings.data.name == name and settings.data.max_length == 100
    assert settings.data.cache == f"data/{name}/prepared"
    assert (settings.data.source_language, "en") == request.job.lock.languages
    assert settings.model.dim == 512 and settings.optim.kind == "plateau"
    if name == "wmt19_deen":
        assert settings.segmenter.kind == "bpe" and settings.segmenter.merges == 50_000
    else:
        assert settings.segmenter.vocabulary_size == 32_000
        assert not settings.segmenter.shared_vocabulary
    for encoding in request.job.lock.encodings:
        experiment_of([f"encoding={encoding}"])


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

    found = loss.loss(Store(), told, 100)  # type: ignore[arg-type]
    assert found == loss.DroppedPairs(pairs=8, limit=100, over=2, between=3)
    text = loss.describe(found, understood(["wmt19_deen"])[0].job.lock.paper)
    assert "2 (25.00 %)         0.4 %" in text and "3 (37.50 %)         1.2 %" in text
    other = loss.describe(found._replace(limit=60), understood(["wmt19_deen"])[0].job.lock.paper)
    assert "0.4 %" not in other and "76" not in other


@pytest.mark.parametrize("name", RECIPES)
def test_estimates_grow_with_what_is_asked(name: str, tmp_path: Path) -> None:
    job = understood([name, "--root", str(tmp_path)])[0].job
    base = experiment_of([*job.lock.words, *job.lock.training]).settings
    tiny = experiment_of([*job.lock.words, "model=tiny"]).settings
    train = estimate.of_train(job, base, gpu=True)
    assert (
        train.disk + 1e9 > 5e9
        and 1e9 < estimate.of_train(job, tiny, True).disk * 5 < train.disk * 5
    )
    assert estimate.of_train(job, base, gpu=False).seconds > 100 * train.seconds
    assert estimate.of_prepare(job, base, 1).seconds > 3 * estimate.of_prepare(job, base, 4).seconds
    every = experiment_of(["data=wmt19_deen", "segmenter=unigram"]).settings
    some = experiment_of(
        ["data=wmt19_deen", "segmenter=unigram", "segmenter.training_lines=1000"]
    ).settings
    memory = [estimate.of_prepare(job, each, 1).memory for each in (some, every)]
    assert memory[1] > 10 * memory[0]
    assert (
        estimate.of_score(2000, base, 2, True).seconds
        < estimate.of_score(20_000, base, 2, True).seconds
    )


def test_parameters_are_those_of_the_model() -> None:
    import torch

    from nmt import build

    settings = experiment_of(["model=base", "segmenter.merges=1000"]).settings
    with torch.device("meta"):
        model = build.transformer(settings, 1500, 1500)
    real = sum(p.numel() for p in model.parameters())
    assert abs(estimate.parameters(settings) / real - 1) < 0.01


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
    scores = tmp_path / "runs" / "scores" / "absolute+relative"
    sets = (
        ["newstest2018", "newstest_all", "concat_seq"] if name == RECIPES[0] else ["newstest2019"]
    )
    assert sorted(p.stem for p in scores.glob("*.json")) == sorted(sets)
    for each in sets:
        told = json.loads((scores / f"{each}.json").read_bytes())
        assert [system["label"] for system in told["systems"]] == ["absolute", "relative"]
        assert f"{each}\n{(scores / f'{each}.txt').read_text(encoding='utf-8')}" in out
        assert "76-100" in out and "over 100" in out

    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert recipe(words) == 0  # nothing again, the tables apart
    again, err = capsys.readouterr()
    for stage in ("download", "extract", "corpus", "tests", "prepare", "train", "score"):
        assert f"{stage}: nothing to do" in err
    assert again.endswith(out[out.index(sets[0] + "\n") :])
    changed = {p for p, t in before.items() if p.stat().st_mtime_ns != t}
    assert {p.name for p in changed} <= {".lock", "train.json"}

    # another corpus, and the runs of the first are not taken for runs on it
    if name == "wmt19_deen":
        stages = ["download", "extract", "corpus", "prepare", "train"]
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
        ("score", "alibi: not trained yet; the stage train does that"),
    ):
        assert recipe([*words, stage]) == 66
        assert said in capsys.readouterr().err
    assert recipe([*words, "download", "extract", "corpus", "tests"]) == 0
    assert recipe([*words, "train"]) == 66
    assert (
        "not prepared with these overrides; the stage prepare does that" in capsys.readouterr().err
    )
    assert recipe([*words, "prepare"]) == 0
    others = [word.replace("segmenter.merges=60", "segmenter.merges=70") for word in words]
    assert recipe([*others, "train"]) == 66  # not what was prepared
    assert recipe([*words, "train"]) == 0
    assert (tmp_path / "runs" / "alibi" / "config.json").exists()


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
