"""The bench as one types it; what it measures is tiny here."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import scripts.bench
from nmt.errors import Exit
from scripts.bench.__main__ import main

QUICK = ("--quick", "--rounds", "1", "--threads", "1")
PEERS = Path(scripts.bench.__file__).parent / "peers"


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> tuple[str, Any]:
    report = tmp_path / "report.json"
    code = main([*words, *QUICK, "--json", str(report)])
    out, err = capsys.readouterr()
    assert code == Exit.OK, err
    return out, json.loads(report.read_text())


@pytest.mark.slow
def test_all_parts_with_the_peers_that_are_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, report = run(capsys, tmp_path, "--precision", "float32")
    assert report["machine"]["threads"] == 1
    parts = report["parts"]
    assert list(parts) == ["training", "decoding", "preparation"] and "training: 3+3 layers" in out
    trained = {entry["name"]: entry["rounds"] for entry in parts["training"]["entries"]}
    assert {"nmt relative float32", "xtransformers float32", "marian_hf float32"} <= set(trained)
    (tokens,) = {rounds[0]["units"] for rounds in trained.values() if rounds}
    assert tokens > 0, "the same for all"
    assert trained["nmt relative float32"][0]["peak_bytes"] > 10**7
    decoded = {entry["name"]: entry for entry in parts["decoding"]["entries"]}
    own = ["nmt float32", "nmt bfloat16", "nmt int8", "nmt auto float32", "nmt auto int8"]
    assert list(decoded) == [*own, "ctranslate2_ float32", "ctranslate2_ int8"]
    for entry in decoded.values():
        assert entry["rounds"][0]["units"] == 8 * 32
        assert entry["one sentence"]["rounds"][0]["units"] == 32
    mine, plain = (entry["rounds"][0] for entry in parts["preparation"]["entries"])
    assert mine["units"] == plain["units"] == 2 * 200 and plain["parts"]["tokenise"] > 0


@pytest.mark.slow
def test_gpu_mode_runs_to_its_end_on_a_cpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--gpu", "correctness", "lengths", "--device", "cpu")
    _, report = run(capsys, tmp_path, *words, "--encodings", "relative,lstm,no_such")
    checked = report["parts"]["correctness"]
    assert checked["shares of the bound"] == {"relative": 0, "lstm": 0}, "the same device"
    assert list(checked["failed"]) == ["no_such"]
    benchmarks = report["parts"]["lengths"]["benchmarks"]
    assert len(benchmarks) == 2
    assert all(each["entries"][0]["rounds"] for each in benchmarks)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["traning"], "traning"),
        (["--gpu", "training"], "training"),
        (["--precision", "float16"], "float16"),
        (["--peer", "fairseq"], "fairseq"),
        (["peers"], "peers DIR"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == Exit.USAGE
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and named in err


def test_peers_import_nothing_of_ours_and_are_pinned() -> None:
    scripts = sorted(PEERS.glob("*.py"))
    pinned = sorted((PEERS / "requirements").glob("*.txt"))
    assert scripts and pinned
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "nmt"], path
    for file in pinned:
        assert (PEERS / f"{file.stem}.py").exists()
        lines = [x for x in file.read_text().split("\n") if x and not x.startswith("#")]
        assert all("==" in line or line == "torch" for line in lines)
