"""SCAN's own files become the text that experiment=scan reads."""

from pathlib import Path

import pytest

from nmt.config.compose import experiment_of
from nmt.evaluation.testsets import corpus_test_files
from scripts import scan

LINES = [f"IN: walk {i} OUT: I_WALK " + "I_RUN " * i for i in range(200)]


def made(tmp_path: Path, train: list[str], test: list[str], *more: str) -> int:
    for name, lines in (("a.txt", train), ("b.txt", test)):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    return scan.main([*(str(tmp_path / n) for n in ("a.txt", "b.txt", "out")), *more])


def read(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_all_pairs_arrive_once_side_by_side(tmp_path: Path) -> None:
    assert made(tmp_path, LINES, LINES[:3]) == 0
    out = tmp_path / "out"
    pairs = {
        name: list(zip(read(out / f"{name}.command"), read(out / f"{name}.action"), strict=True))
        for name in ("train", "dev", "test")
    }
    wanted = [(f"walk {i}", " ".join(["I_WALK", *["I_RUN"] * i])) for i in range(200)]
    assert sorted(pairs["train"] + pairs["dev"]) == sorted(wanted)
    assert pairs["test"] == wanted[:3]
    assert 3 <= len(pairs["dev"]) <= 20


def test_both_files_are_split_anew_by_length(tmp_path: Path) -> None:
    assert made(tmp_path, LINES[:150], LINES[150:], "--longest", "170") == 0
    lengths = {
        name: {len(line.split()) for line in read(tmp_path / "out" / f"{name}.action")}
        for name in ("train", "dev", "test")
    }
    assert lengths["train"] | lengths["dev"] == set(range(1, 171))
    assert lengths["test"] == set(range(171, 201))


@pytest.mark.parametrize("line", ["walk I_WALK", "IN: walk OUT:", "a\tb\tc", ""])
def test_other_lines_are_refused(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tmp_path, [*LINES, line, LINES[0]], LINES[:1]) == 65
    assert "a.txt:201: expected `IN: command OUT: actions`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_experiment_reads_what_the_script_writes(tmp_path: Path) -> None:
    made(tmp_path, LINES, LINES[:1])
    settings = experiment_of(["experiment=scan", f"data.root={tmp_path / 'out'}"]).settings
    data = settings.data
    named = [data.train_source, data.train_target, data.dev_source, data.dev_target]
    named += corpus_test_files(settings)
    assert sorted(Path(str(name)).name for name in named) == sorted(
        path.name for path in (tmp_path / "out").iterdir()
    )
    longest = settings.decode.max_length_ratio * 9 + settings.decode.max_length_offset
    assert longest >= 48  # actions of the longest test pair
