"""The bench as one types it; what it measures is tiny here."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import scripts.bench
from nmt.errors import Exit, UserError
from scripts.bench import correctness, decoding, session, training
from scripts.bench.__main__ import main, understood

QUICK = ("--quick", "--rounds", "1", "--threads", "1")
PEERS = Path(scripts.bench.__file__).parent / "peers"


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> tuple[str, Any]:
    report = tmp_path / "report.json"
    code = main([*words, *QUICK, "--json", str(report)])
    out, err = capsys.readouterr()
    assert code == Exit.OK, err
    return out, json.loads(report.read_text())


@pytest.mark.slow
def test_training(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("training", "--precision", "float32", "--peers", "none")
    out, report = run(capsys, tmp_path, *words)
    assert report["machine"]["threads"] == 1
    training = report["parts"]["training"]
    names = [entry["name"] for entry in training["entries"]]
    assert len(names) == 2
    assert "nmt relative float32" in names
    for entry in training["entries"]:
        (figures,) = entry["rounds"]
        assert figures["units"] > 0
        assert figures["peak_bytes"] > 10**7
        assert 0 < entry["share of the peak"]["float32"] < 1
    units = {entry["rounds"][0]["units"] for entry in training["entries"]}
    assert len(units) == 1, "the same tokens for all"
    assert "training: 3+3 layers" in out
    assert "nmt relative float32" in out


@pytest.mark.slow
@pytest.mark.parametrize("steady", [False, True])
def test_decoding(steady: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, report = run(capsys, tmp_path, "decoding", "--peers", "none", *["--steady"] * steady)
    entries = report["parts"]["decoding"]["entries"]
    own = ["nmt float32", "nmt bfloat16", "nmt int8"]
    assert [entry["name"] for entry in entries] == [*own, "nmt auto float32", "nmt auto int8"]
    for entry in entries:
        assert entry["rounds"][0]["units"] == 8 * 32
        assert ("whole" in entry) != steady
        assert steady or entry["whole"]["rounds"][0]["units"] == 4 * 32
    assert "nmt int8" in out and ("whole 4, s" in out) != steady


@pytest.mark.slow
def test_every_part(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("preparation", "startup", "encodings")
    options = ("--encodings", "relative,tpe,nonsense", "--precision", "float32")
    _, report = run(capsys, tmp_path, *words, *options)
    parts = report["parts"]
    assert list(parts) == list(words)
    mine, plain = parts["preparation"]["entries"]
    assert mine["equal lines"] == 1.0
    assert plain["rounds"][0]["parts"]["tokenise"] > 0
    assert {entry["within"] for entry in parts["startup"]["entries"]} <= {None, True, False}
    relative, tpe, nonsense = parts["encodings"]["entries"]
    assert relative["mean 26"]["time over"] > 0
    assert tpe["100 tokens"]["memory over"] > 0
    assert nonsense["mean 26"]["failed"].startswith("encoding=nonsense: no such option")


@pytest.mark.slow
def test_peers_do_the_same_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, report = run(capsys, tmp_path, "training", "decoding", "--precision", "float32")
    training, decoding = report["parts"]["training"], report["parts"]["decoding"]
    by_name = {entry["name"]: entry for entry in training["entries"]}
    assert {"xtransformers float32", "marian_hf float32"} <= set(by_name)
    units = {entry["rounds"][0]["units"] for entry in by_name.values() if entry["rounds"]}
    assert len(units) == 1, "the same tokens for all"
    engine = next(e for e in decoding["entries"] if e["name"] == "ctranslate2_ float32")
    assert engine["rounds"][0]["units"] == 8 * 32
    assert "nmt float32: 8 of 8 translations equal CTranslate2's" in out


@pytest.mark.slow
def test_correctness(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--gpu", "correctness", "--device", "cpu", "--encodings", "relative")
    out, report = run(capsys, tmp_path, *words)
    (part,) = report["parts"].values()
    checks = [value for key, value in part.items() if isinstance(value, dict)]
    assert len(checks) == 4 and all(not check["errors"] for check in checks)
    assert all(set(checks[i]["shares"]) == {"relative"} for i in (0, 1))
    assert set(checks[3]["shares"]) == {"relative"}
    assert all(share <= 1 for check in checks for share in check["shares"].values())
    gradients = correctness._gradients
    calls = iter([1.0, 1.001] * 2)
    monkeypatch.setattr(
        correctness, "_gradients", lambda model: [g * next(calls) for g in gradients(model)[:1]]
    )
    monkeypatch.setattr("nmt.training.trainer.restore_optimizer", lambda *given: None)
    out, report = run(capsys, tmp_path, *words)
    (row,) = [line for line in out.split("\n") if line.startswith("loss and gradients")]
    assert "relative: " in row and "none" not in row
    (row,) = [line for line in out.split("\n") if line.startswith("resumed")]
    assert "relative: nan" in row


@pytest.mark.slow
def test_gpu_mode_runs_to_its_end_on_a_cpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--gpu", "--device", "cpu", "--peers", "none")
    _, report = run(capsys, tmp_path, *words)
    for name in ("sizes", "lengths"):
        benchmarks = report["parts"][name]["benchmarks"]
        assert len(benchmarks) == 2
        assert all(each["entries"][0]["rounds"] for each in benchmarks)
    assert report["parts"]["decoding"]["entries"][0]["rounds"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["traning"], "traning: no such part; there are training, decoding"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--gpu", "training"], "training: no such part of --gpu; there are correctness, sizes"),
        (["--precision", "float16"], "--precision float16: choose among float32, bfloat16"),
        (["--peer", "fairseq"], "--peer fairseq: choose among ctranslate2, marian_hf, sockeye"),
        (["peers"], "peers DIR: name the directory"),
        (["--rounds", "x"], "argument --rounds: invalid int value"),
        (["--peers", "/nowhere"], "--peers /nowhere: no such directory"),
    ],
)
def test_wrong_arguments(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        understood(words)


def test_peers_of_a_part_can_be_chosen(tmp_path: Path) -> None:
    words = ["decoding", "--peer", "ctranslate2,xtransformers", "--steady", "--peers", "."]
    it = session.Session.of(understood(words), tmp_path, "cpu")
    assert it.steady and it.peers_among(decoding.PEERS) == ["ctranslate2_"]
    assert it.peers_among(training.PEERS) == ["xtransformers"]
    every = it._replace(chosen=understood([]).peer)
    assert every.peers_among(decoding.PEERS) == list(decoding.PEERS)
    assert every._replace(peers=None).peers_among(decoding.PEERS) == []


def test_a_wrong_argument_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "0"]) == Exit.USAGE
    assert capsys.readouterr() == ("", "nmt: --rounds 0: must be at least 1\n")


def test_parts_are_told_from_overrides() -> None:
    given = understood(["startup", "encodings", "encoding=relative", "--rounds", "3"])
    assert given.parts == ["startup", "encodings"]
    assert given.overrides == ["encoding=relative"]
    assert given.peers == sys.executable
    assert understood(["--gpu"]).peers == "none"
    assert understood(["--gpu", "--peers", "."]).peers == "."
    assert understood([]).parts == ["training", "decoding", "preparation", "startup"]
    assert understood(["peers", "some/where"]).install == Path("some/where")


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
