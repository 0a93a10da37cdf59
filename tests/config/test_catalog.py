"""What the files of conf/ and of one's own folders must look like."""

from pathlib import Path

import pytest

from nmt.cli.encodings import main as encodings
from nmt.cli.train import main as train
from nmt.config.catalog import config_dir_override
from nmt.config.compose import experiment_of
from nmt.errors import UserError

BODY = "# A line\nencoding:\n  custom: {use: alibi, directional: true}\n"


def write(folder: Path, group: str, option: str, text: str) -> Path:
    path = folder / group / f"{option}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("head", ["", "# What it does\n# @package _global_\n"])
def test_a_file_whose_keys_would_go_astray_is_refused(head: str, tmp_path: Path) -> None:
    path = write(tmp_path, "encoding", "custom", head + BODY)
    with pytest.raises(UserError) as e:
        experiment_of([*config_dir_override(str(tmp_path)), "encoding=custom"])
    assert str(e.value) == (
        f"{path}:1: must be '# @package _global_', or all keys of the file are taken to be inner "
        "ones of encoding"
    )


@pytest.mark.parametrize("head", ["# @package _global_\n", "\n#@package  _global_ \n"])
def test_what_hydra_reads_is_taken(head: str, tmp_path: Path) -> None:
    write(tmp_path, "encoding", "custom", head + BODY)
    settings = experiment_of([*config_dir_override(str(tmp_path)), "encoding=custom"]).settings
    assert list(settings.encoding) == ["custom"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"seed: 1\nseed: 2\n", 'found duplicate key seed in "'),
        (b"seed: 1\n# gr\xf6\xdfe\n", "can't decode byte 0xf6"),
        (
            b"defaults: [relativ, _self_]\n",
            "custom.yaml: encoding=relativ: no such option; did you mean relative?",
        ),
        (b"- seed\n", "custom.yaml: expected lines of KEY: VALUE"),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_line(
    body: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "encoding" / "custom.yaml"
    path.parent.mkdir()
    path.write_bytes(b"# @package _global_\n" + body)
    folder = ["--config-dir", str(tmp_path)]
    for command, words in ((train, ["encoding=custom"]), (encodings, ["custom"])):
        assert command([*folder, *words]) == 2
        out, err = capsys.readouterr()
        assert not out and message in err and err.count("\n") == 1


def test_an_experiment_may_set_the_seed_and_the_place_of_its_runs(tmp_path: Path) -> None:
    text = "seed: 7\nruns: there\nname: own-${seed}\njobs: 3\n"
    write(tmp_path, "experiment", "custom", f"# @package _global_\n{text}")
    mine = [*config_dir_override(str(tmp_path)), "experiment=custom"]
    untyped, typed = experiment_of(mine), experiment_of([*mine, "seed=5", "runs=here"])
    assert (untyped.settings.seed, untyped.run, untyped.jobs) == (7, Path("there/own-7"), 3)
    assert (typed.settings.seed, typed.run) == (5, Path("here/own-5"))


def test_an_option_that_would_never_be_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "model", "tiny", "")
    with pytest.raises(UserError) as e:
        experiment_of([*config_dir_override(str(tmp_path)), "model=tiny"])
    assert str(e.value) == (
        f"{path}: model=tiny is built in and would be taken instead; rename the file"
    )


def test_a_misspelt_option_of_ones_own_is_named(tmp_path: Path) -> None:
    write(tmp_path, "encoding", "custom", "# @package _global_\n" + BODY)
    with pytest.raises(UserError, match="encoding=custam: no such option; did you mean custom"):
        experiment_of([*config_dir_override(str(tmp_path)), "encoding=custam"])
