"""Paths on a command line mean what they say, and hints show quoting that works in a shell."""

import logging
import os
import re
import subprocess
from pathlib import Path

import pytest

from nmt.cli.train import next_commands
from nmt.errors import UserError
from nmt.overrides.arguments import parse
from nmt.overrides.compose import Experiment, composed, experiment_of
from nmt.overrides.options import config_dir_override
from nmt.overrides.sweep import sweep_of
from tests.fast import fast_first

ODD = [
    *("größe", "a(b)", "eq=al", "mit,komma", "it's", 'a"b', "#x", "a;b", "a&b", "x'", "x y", " x"),
    *("[a]", "{a}", "007", "1_000", "true", "a:b", "100%", "back\\slash", "$HOME", "*", "sort"),
    *("\N{SNOWMAN}", "!x", "`x`", "<x>", "~x~", "new\nline", "x\\'y", "-x", "@x", "a, b", "glob"),
]


@pytest.mark.parametrize(
    ("name", "cache", "runs"), fast_first(4, zip(ODD[:12], ODD[12:24], ODD[22:], strict=True))
)
def test_a_path_is_taken_as_it_stands(name: str, cache: str, runs: str) -> None:
    words = ["data=files", f"data.root={name}", f"data.cache={cache}", f"runs={runs}"]
    asked = experiment_of([*words, "name=n"])
    settings, run = asked.settings, asked.run
    assert settings.data.root == name
    assert settings.data.train_source == f"{name}/train.de"
    assert settings.data.cache == cache
    assert run == Path(runs) / "n"


def test_a_parent_is_taken_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/a, b")
    for name in ODD:
        (override,) = parse([f"parent={name}"])
        assert (override.key_or_group, override.value()) == ("parent", name)
    (override,) = parse(["parent=~/m"])
    assert override.value() == "/home/a, b/m"
    one, two = parse(["parent=größe,~x"], sweep=True)[0].sweep_string_iterator()
    assert (one, two) == ("'größe'", "'~x'")


def test_quotes_of_hydra_are_still_understood() -> None:
    for word in ("'größe'", '"größe"'):
        data = experiment_of(["data=files", f"data.root={word}"]).settings.data
        assert data.root == "größe"


def test_the_home_directory_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/größe, a")
    data = experiment_of(
        ["data=files", "data.root=~/x", "data.cache=~", "data.name=~"]
    ).settings.data
    assert (data.root, data.cache, data.name) == ("/home/größe, a/x", "/home/größe, a", "~")


def test_what_refers_to_something_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "größe")
    data = experiment_of(["data=files", "data.root=${oc.env:PLACE}/x"]).settings.data
    assert data.root == "größe/x"
    monkeypatch.setenv("NUMBER", "3")
    numbers = experiment_of(["seed=${oc.env:NUMBER}", "trainer.max_steps=${oc.env:NUMBER}"])
    assert (numbers.settings.seed, numbers.settings.trainer.max_steps) == (3, 3)
    assert experiment_of(["trainer.init_from=null"]).settings.trainer.init_from is None


def swept(*argv: str) -> list[Experiment]:
    sweep = sweep_of(parse(argv, sweep=True), multirun=True)
    assert sweep is not None
    return [composed(job) for job in sweep.jobs]


def test_only_a_sweep_parts_a_path_at_commas() -> None:
    roots = [each.settings.data for each in swept("data=files", "data.root=größe,~x")]
    assert [data.root for data in roots] == ["größe", "~x"]
    (job,) = swept("data=files", "data.root='a,b'")
    assert job.settings.data.root == "a,b"
    for me in ("me", "${oc.env:UNSET_,me}"):
        name = "name=${oc.env:UNSET_," + me + "}-${seed},größe"
        runs = [each.run for each in swept(name, "seed=1")]
        assert runs == [Path("runs/me-1"), Path("runs/größe")]


def test_ones_own_options_may_lie_anywhere(tmp_path: Path) -> None:
    names = ("größe, [1]", "eq=al (b) 'x'")
    for name in names:
        (tmp_path / name / "model").mkdir(parents=True)
        text = Path("conf/model/tiny.yaml").read_text(encoding="utf-8")
        own = tmp_path / name / "model" / f"of_{len(name)}.yaml"
        own.write_text(text.replace("128", "64"), encoding="utf-8")
    words = config_dir_override(*(str(tmp_path / name) for name in names))
    for name in names:
        assert experiment_of([*words, f"model=of_{len(name)}"]).settings.model.dim == 64


COLUMNS = "+data.columns.heads={per: word,train: %s,dev: b c,test: null}"
UNREADABLE = ["größe", "a=b", "it's", "$x`y", "a(b", "["]
BESIDE = ["größe/x", "a(b)", "~/x'y", "eq=al"]


def pasted(word: str) -> str:
    """What a shell makes of the words that the message on `word` shows."""
    with pytest.raises(UserError) as error:
        experiment_of(["data=files", "data.root=x", word])
    message = str(error.value)
    assert message.startswith(f"{word}: ") and "\n" not in message
    shown = message.partition("write ")[2]
    shell = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, check=True)
    return shell.stdout.decode()


@pytest.mark.parametrize("value", UNREADABLE)
def test_a_hint_for_a_text_can_be_pasted(value: str) -> None:
    typed = pasted(f"segmenter.kind={value}")
    with pytest.raises(UserError, match=re.escape(f"segmenter.kind={value}: choose one of")):
        experiment_of([typed])


@pytest.mark.parametrize("path", BESIDE)
def test_a_hint_for_a_mapping_can_be_pasted(path: str) -> None:
    typed = pasted(COLUMNS % path)
    data = experiment_of(["data=files", "data.root=x", typed]).settings.data
    train = os.path.expanduser(path)  # noqa: PTH111
    assert (data.columns["heads"].train, data.columns["heads"].dev) == (train, "b c")
    assert data.columns["heads"].test is None


def test_the_next_commands_can_be_pasted(caplog: pytest.LogCaptureFixture) -> None:
    beside = "+data.columns.heads={per: word,train: a,dev: b,test: it's (e)}"
    texts = ["data=files", "data.root=$x y", "data.test_source=a;b", pasted(beside)]
    texts += ["encoding=graformer"]  # reads heads
    with caplog.at_level(logging.INFO):
        for target in ([], ["data.test_target=*"]):
            next_commands([experiment_of([*texts, *target, "name=größe & co"])])
    shown = "; ".join(record.getMessage().removeprefix("next:") for record in caplog.records)
    script = 'nmt-translate() { printf "%s|" "$@"; }; nmt-evaluate() { nmt-translate "$@"; }; '
    shell = subprocess.run(["bash", "-c", script + shown], capture_output=True, check=True)
    run, columns = "runs/größe & co", "--columns|heads=it's (e)|"
    assert shell.stdout.decode() == (
        f"{run}|a;b|{columns}{run}|--source|a;b|--reference|TEST.en|{columns}"
        f"{run}|a;b|{columns}{run}|"
    )
