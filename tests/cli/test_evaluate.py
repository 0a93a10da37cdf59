"""nmt-evaluate: what it shows, what it keeps, and what it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt import modeldir
from nmt.cli import evaluate
from nmt.compare.report import Report
from nmt.config import Settings
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.experiments.evaluate import system_of
from nmt.modeldir import Trained
from tests.compare.made_up import noisy, references
from tests.decode.copying import Spaces, ended, trained

ROOT = Path(__file__).parent.parent.parent
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Words -> exit code, stdout, stderr; run among src, ref, a.txt and b.txt."""
    right = references(40, longest=12)
    write(tmp_path / "src", right)
    write(tmp_path / "ref", right)
    write(tmp_path / "a.txt", noisy(right, 0.3))
    write(tmp_path / "b.txt", noisy(right, 0.5, seed=2))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = evaluate.main([*words, "--samples", "40"])
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
        return (code, *capsys.readouterr())

    return run


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def test_two_files(command: Run, tmp_path: Path) -> None:
    words = ("a.txt", "other=b.txt", "--reference", "ref", "--source", "src", "--bounds", "4,8")
    code, out, err = command(*words, "--json", "new/r.json", "--plot", "new/p.svg")
    assert code == 0, err
    assert out.startswith("40 pairs; source length in words (no model to count pieces)\n")
    assert "nrefs:1|bs:40|seed:12345" in out
    assert "scoring 40 pairs of 2 systems" in err
    made = Report.from_json(json.loads((tmp_path / "new/r.json").read_text()))
    assert [system.label for system in made.systems] == ["a", "other"]
    assert [row.name for row in made.tests[0].rows] == ["0-4", "5-8", "over 8", "all"]
    hypotheses, right = ((tmp_path / n).read_text().split("\n")[:-1] for n in ("a.txt", "ref"))
    expected = BLEU().corpus_score(hypotheses, [right]).score
    assert made.tests[0].rows[-1].cells[0].scores["BLEU"].mean == pytest.approx(expected)
    lines = [(line.source, line.reference, line.hypotheses[0]) for line in made.tests[0].lines]
    sources = (tmp_path / "src").read_text().split("\n")[:-1]
    assert lines == list(zip(sources, right, hypotheses, strict=True))
    others = (tmp_path / "b.txt").read_text().split("\n")[:-1]
    assert [line.hypotheses[1] for line in made.tests[0].lines] == others
    assert set(made.about["versions"]) >= {"nmt", "sacrebleu", "sacremoses"}
    assert made.about["files"]["reference"]["path"] == "ref"
    svg = (tmp_path / "new/p.svg").read_text()
    assert svg.startswith("<?xml")


def test_quiet_and_without_source(command: Run) -> None:
    code, out, err = command("a.txt", "--reference", "ref", "--quiet")
    assert (code, err) == (0, "")
    assert "no source, hence no lengths" in out
    assert "all" in out


def test_exact_match_is_shown_when_asked_for(command: Run, tmp_path: Path) -> None:
    words = ("a.txt", "copy=ref", "--reference", "ref", "--source", "src", "--bounds", "6")
    assert "exact" not in command(*words, "--json", "usual.json")[1]
    usual = Report.from_json(json.loads((tmp_path / "usual.json").read_text()))
    code, out, err = command(*words, "--metric", "exact,ter", "--json", "r.json", "--plot", "r.svg")
    assert code == 0, err
    assert "\nexact  (% of lines equal to the reference" in out and "\nBLEU" not in out
    made = Report.from_json(json.loads((tmp_path / "r.json").read_text()))
    assert [metric.name for metric in made.tests[0].metrics] == ["exact", "TER"]
    said, right = ((tmp_path / n).read_text().split("\n")[:-1] for n in ("a.txt", "ref"))
    share = 100 * sum(a == b for a, b in zip(said, right, strict=True)) / len(right)
    noisy_cell, copy_cell = made.tests[0].rows[-1].cells
    assert 0 < share < 100 and noisy_cell.scores["exact"].mean == pytest.approx(share)
    assert noisy_cell.scores["exact"].low < share < noisy_cell.scores["exact"].high
    assert copy_cell.scores["exact"].mean == 100
    usual_cell = usual.tests[0].rows[-1].cells[0]
    assert noisy_cell.ratio == usual_cell.ratio != share / 100  # of BLEU's tokens
    assert "exact by source length" in (tmp_path / "r.svg").read_text()


def test_lines_end_at_lf_alone(command: Run, tmp_path: Path) -> None:
    odd = ["one\u2028two", "three\x85four \x0b\x0c\x1c five six seven", "eight\rnine", ""]
    write(tmp_path / "ref", odd)
    (tmp_path / "hyp").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(odd).encode() + b"\r\n")
    code, _, _ = command("hyp", "--reference", "ref", "--json", "r.json")
    assert code == 0
    made = Report.from_json(json.loads((tmp_path / "r.json").read_text()))
    assert made.tests[0].rows[-1].pairs == 4
    assert made.tests[0].rows[-1].cells[0].scores["BLEU"].mean == pytest.approx(100)


WRONG = {
    "missing": (("no.txt", "--reference", "ref"), 66, "no.txt: no such file"),
    "unequal": (("short", "--reference", "ref"), 65, "short: has 2 lines, but ref has 40"),
    "empty": (("a.txt", "--reference", "void"), 65, "void: the file is empty"),
    "not text": (("bad", "--reference", "ref"), 65, "bad:1: byte 1"),
    "bounds": (("a.txt", "--reference", "ref", "--bounds", "9,3"), 2, "--bounds 9,3: each"),
    "names": (("a.txt", "a=b.txt", "--reference", "ref"), 2, "a: two systems of this name"),
    "label": (("x/y=a.txt", "--reference", "ref"), 2, "x/y=a.txt: expected LABEL=PATH"),
    "no system": (("decode.alpha=1", "--reference", "ref"), 2, "no system"),
    "no model": (("a.txt", "decode.alpha=1", "--reference", "ref"), 2, "is a model; leave it out"),
    "no source": (("model", "--reference", "ref"), 2, "add --source SRC"),
    "no text": (("a.txt", "--reference", "ref", "--lengths", "model"), 2, "add --source SRC"),
    "perplexity": (("a.txt", "--reference", "ref", "--perplexity"), 2, "--perplexity: none of"),
    "metric": (("a.txt", "--reference", "ref", "--metric", "x"), 2, "no metric 'x'; choose from"),
    "plot": (("a.txt", "--reference", "ref", "--plot", "p.gif"), 2, "must end in one of"),
    "output": (("a.txt", "--reference", "ref", "--json", "ref/r.json"), 73, "ref: "),
    "samples": (("a.txt", "--reference", "ref", "--samples", "x"), 2, "--samples"),
    "no reference": (("a.txt",), 2, "--reference"),
}


@pytest.mark.parametrize(("words", "code", "message"), WRONG.values(), ids=list(WRONG))
def test_refusals(
    command: Run, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    write(tmp_path / "short", ["a", "b"])
    (tmp_path / "void").write_bytes(b"")
    (tmp_path / "bad").write_bytes(b"a\xff\n" * 40)
    (tmp_path / "model").mkdir()
    if "--samples" in words:
        command_code, out, err = _plain(words)
    else:
        command_code, out, err = command(*words)
    assert (command_code, out) == (code, "")
    assert message in err


def _plain(words: tuple[str, ...]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "nmt.cli.evaluate", *words],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings_of: Callable[..., Settings]
) -> None:
    """Directories m1, m2 of one model that copies words, and a text of its words."""
    for name in ("m1", "m2"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(Spaces, "to_json", lambda self: {"kind": "spaces"}, raising=False)
    some = trained()._replace(settings=settings_of("decode.window=3"))
    monkeypatch.setattr(modeldir, "load", lambda path, device: some)
    lines = ["w1 w2", "w3", "w4 w1 w2 w3 w1", "", "w2 w2"]
    write(tmp_path / "s", lines)


def test_models_translate_and_count_pieces(command: Run, models: None, tmp_path: Path) -> None:
    words = ("m1", "again=m2", "file=s", "--reference", "s", "--source", "s", "--bounds", "2")
    code, out, err = command(
        *words, "decode.beam_size=2", "--output-dir", "out", "--json", "r.json"
    )
    assert code == 0, err
    assert "source length in subword pieces of m1" in out
    assert (tmp_path / "out/again.txt").read_bytes() == (tmp_path / "s").read_bytes()
    assert not (tmp_path / "out/file.txt").exists()
    made = Report.from_json(json.loads((tmp_path / "r.json").read_text()))
    longest = int(trained().facts["longest_source"])
    assert [system.longest_trained for system in made.systems] == [longest, longest, None]
    assert made.tests[0].rows[0].pairs == 4
    assert made.about["systems"][0]["decode"]["beam_size"] == 2
    assert made.about["systems"][2]["decode"] is None


def test_several_models_are_one_system(
    command: Run, models: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = modeldir.load

    def watched(path: str | Path, device: str) -> Trained:
        loaded.append(str(path))
        return load(path, device)

    monkeypatch.setattr(modeldir, "load", watched)
    words = ("both=m1,m2", "m2,m1", "file=s", "--reference", "s", "--source", "s", "--json", "r")
    code, _, err = command(*words, "--output-dir", "out")
    assert code == 0, err
    assert loaded == ["m1", "m1", "m2", "m2", "m1"]  # the first of all counts pieces
    for name in ("both", "m2+m1"):
        assert (tmp_path / f"out/{name}.txt").read_bytes() == (tmp_path / "s").read_bytes()
    made = Report.from_json(json.loads((tmp_path / "r").read_text()))
    assert [system["path"] for system in made.about["systems"]] == ["m1,m2", "m2,m1", "s"]
    code, _, err = command(*words, "--perplexity")
    assert (code, "m1,m2: --perplexity: of single models only" in err) == (2, True)
    code, _, err = command("m1,none", *words[2:])
    assert (code, "m1,none: no such file" in err) == (66, True)


def test_joined_lines_by_sentence(
    command: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings_of: Callable[..., Settings],
) -> None:
    monkeypatch.setattr(Spaces, "to_json", lambda self: {"kind": "spaces"}, raising=False)
    some = ended()._replace(settings=settings_of())
    monkeypatch.setattr(modeldir, "load", lambda *_: some)
    lines = ["w1 w2", "w3", "w4 w5 w6", "w7"]
    joined.write(tmp_path, "two", "de", "en", joined.join(lines, lines), {})
    words = ("model", "--source", "two.de", "--reference", "two.en", "--bounds", "4,5")
    (tmp_path / "model").mkdir()
    code, _, err = command(*words, "--output-dir", "whole")
    assert code == 0, err
    assert read_text(tmp_path / "whole/model.txt") == ["w1 w2 w3 w39", "w4 w5 w6 w7 w39"]
    code, _, err = command(*words, "--output-dir", "apart", "--by-sentence", "--json", "r.json")
    assert code == 0, err
    assert read_text(tmp_path / "apart/model.txt") == ["w1 w2 w39 w3 w39", "w4 w5 w6 w39 w7 w39"]
    made = Report.from_json(json.loads((tmp_path / "r.json").read_text()))
    assert [row.pairs for row in made.tests[0].rows] == [0, 1, 1, 2] and made.about["by_sentence"]
    plain = ("two.en", "--source", "two.de", "--reference", "two.en", "--by-sentence")
    assert command(*plain)[0] == 2
    assert command(*plain, "--lengths", "model")[0] == 0
    (tmp_path / "two.json").unlink()
    code, _, err = command(*words, "--by-sentence")
    assert code == 66 and "two.json: no record of a joined test set" in err


def test_dropped_second_halves_of_joined_lines_are_counted(command: Run, tmp_path: Path) -> None:
    first, second = ["Der alte Mann schläft.", "Wir gehen."], ["Sie sah den Hund.", "Es schneit."]
    pairs = [line for two in zip(first, second, strict=True) for line in two]
    joined.write(tmp_path, "two", "de", "en", joined.join(pairs, pairs), {})
    write(tmp_path / "half", first)
    words = ("half", "whole=two.de", "--source", "two.de", "--reference", "two.en")
    code, out, err = command(*words, "--json", "r.json")
    assert code == 0, err
    block = out.split("second half dropped  (% of joined lines)\n")[1].split("\n\n")[0]
    assert block.split("\n")[-1].split() == ["all", "2", "few", "100.0", "0.0"]
    cells = json.loads((tmp_path / "r.json").read_text())["tests"][0]["rows"][-1]["cells"]
    assert [cell["signs"]["dropped_half"] for cell in cells] == [1.0, 0.0]
    write(tmp_path / "other", read_text(tmp_path / "two.en")[::-1])
    code, out, err = command("half", "--source", "two.de", "--reference", "other")
    assert code == 0 and "second half dropped" not in out
    assert "dropped second halves are not counted: other: is not the reference" in err


def test_only_decode_may_change(command: Run, models: None) -> None:
    code, _, err = command("m1", "decode.beam=2", "--reference", "s", "--source", "s")
    assert code == 2
    assert "did you mean decode.beam_size?" in err


def test_labels_of_checkpoints(tmp_path: Path) -> None:
    checkpoint = tmp_path / "relative" / "checkpoints" / "step-00000007"
    checkpoint.mkdir(parents=True)
    assert system_of(str(checkpoint)).label == "relative@step-00000007"
    assert system_of(str(tmp_path / "relative")).label == "relative"
    assert system_of("runs/x.en.gz").label == "x"
    (tmp_path / "a=b").write_bytes(b"")
    assert system_of(str(tmp_path / "a=b")).path == tmp_path / "a=b"


def test_help_is_fast_and_needs_neither_torch_nor_sacrebleu() -> None:
    program = (
        "import sys; from nmt.cli.evaluate import understood\n"
        "try: understood(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'sacrebleu', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"--reference REF" in done.stdout
