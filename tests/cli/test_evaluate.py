"""nmt-evaluate: what it shows, what it keeps, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt import modeldir
from nmt.cli import evaluate
from nmt.system import manifest
from nmt.text.lines import read_text
from tests.evaluation.made_up import noisy, references

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


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def mean(report: Any, *where: str) -> float:
    """The mean of a system, group and metric."""
    keys = ("system", "group", "metric")
    (row,) = [f for f in report["figures"] if tuple(f[key] for key in keys) == where]
    return float(row["mean"])


def test_two_files(command: Run, tmp_path: Path) -> None:
    words = ("a.txt", "other=b.txt", "--reference", "ref", "--source", "src", "--bounds", "4,8")
    code, out, err = command(*words, "-o", "new/r.json", "--output", "new/p.svg")
    assert code == 0, err
    assert "test, 40 pairs; source length in words (no model to count pieces)" in out
    assert "nrefs:1|bs:40|seed:12345" in out
    assert "scoring test: 40 pairs\n" in err and err.endswith("wrote new/r.json\nwrote new/p.svg\n")
    report = read(tmp_path / "new/r.json")
    assert [system["label"] for system in report["systems"]] == ["a", "other"]
    (test,) = report["tests"]
    assert [group["name"] for group in test["groups"]] == ["0-4", "5-8", "over 8", "all"]
    hypotheses, right = ((tmp_path / n).read_text().split("\n")[:-1] for n in ("a.txt", "ref"))
    expected = BLEU().corpus_score(hypotheses, [right]).score
    assert mean(report, "a", "all", "BLEU") == pytest.approx(expected)
    lines = [
        (line["source"], line["reference"], line["hypotheses"][0][0]) for line in test["lines"]
    ]
    sources = (tmp_path / "src").read_text().split("\n")[:-1]
    assert lines == list(zip(sources, right, hypotheses, strict=True))
    others = (tmp_path / "b.txt").read_text().split("\n")[:-1]
    assert [line["hypotheses"][1] for line in test["lines"]] == [[other] for other in others]
    assert set(report["about"]["versions"]) >= {"nmt", "sacrebleu", "sacremoses"}
    assert report["about"]["files"]["test reference ref"] == manifest.sha256_of(tmp_path / "ref")
    assert (tmp_path / "new/p.svg").read_text().startswith("<?xml")


def test_without_source_and_as_tsv(command: Run) -> None:
    code, out, _ = command("a.txt", "--reference", "ref", "--format", "tsv")
    assert code == 0 and {line.count("\t") for line in out.split("\n")[:-1]} == {14}


def test_scores_of_a_learned_metric_are_treated_like_any(command: Run, tmp_path: Path) -> None:
    for name, value in (("a", 0.5), ("b", 0.75)):
        write(tmp_path / f"{name}.comet", [f"{value + i % 2 / 8}" for i in range(40)])
    words = ("a.txt", "b.txt", "--reference", "ref", "--source", "src", "--bounds", "6")
    scores = ("--scores", "comet=a:a.comet", "--scores", "comet=b:b.comet")
    code, out, err = command(*words, *scores, "-o", "r.json")
    assert code == 0, err
    assert mean(read(tmp_path / "r.json"), "b", "all", "comet") == pytest.approx(0.8125)
    table = out.split("\ncomet  (")[1].split("\n\n")[0]
    assert "0.562" in table and "0.812" in table and "  95%" in table
    for lines, code, message in (
        (["1"] * 39, 65, "b.comet: 39 lines; the test has 40"),
        (["1"] * 39 + ["good"], 65, "b.comet: could not convert string to float: 'good'"),
        (["1"] * 39 + ["nan"], 65, "b.comet: 40 lines"),
    ):
        write(tmp_path / "b.comet", lines)
        exit_code, out, err = command(*words, *scores)
        assert (exit_code, out) == (code, "") and message in err


def test_consecutive_lines_are_joined_within_a_file(command: Run, tmp_path: Path) -> None:
    lines = read_text(tmp_path / "ref")
    write(tmp_path / "more", lines[:5])
    texts = ("--source", "src", "--source", "more", "--reference", "ref", "--reference", "more")
    joined = [" ".join(lines[i : i + 4]) for i in range(0, 40, 4)]
    joined += [" ".join(lines[:4]), lines[4]]  # none crosses the border of the files
    write(tmp_path / "copy", joined)
    code, _, err = command("ref", *texts, "--join", "4")
    assert code == 65 and "ref: has 40 lines, but ref, 4 lines joined, has 12" in err
    code, out, err = command("copy", *texts, "--join", "4", "-o", "r.json")
    assert code == 0, err
    report = read(tmp_path / "r.json")
    assert [line["reference"] for line in report["tests"][0]["lines"]] == joined
    assert report["about"]["joined"] == {"test": 4}
    places = [group for group in report["tests"][0]["groups"] if " of 4" in group["name"]]
    assert [group["pairs"] for group in places] == [11] * 4
    assert mean(report, "copy", "3 of 4", "arrived") == 1 and "\nleft out, %  (" in out
    assert command("copy", *texts[2:], "--join", "4")[0] == 2  # one source, two references


def test_what_is_more_than_translations_is_not_scored(command: Run, tmp_path: Path) -> None:
    for line, option in (
        ('{"line": 1, "source": "a", "translations": []}', "--json"),
        ("3\t1\t-0.5000\tthe text", "--n-best"),
        ("-0.5000\tthe text", "--scores"),
    ):
        write(tmp_path / "h", [line] * 40)
        code, out, err = command("h", "--reference", "ref")
        assert (code, out) == (65, "") and f"what nmt-translate {option} writes" in err
    write(tmp_path / "h", ["-0.5000\tthe text"] * 39 + ["plain text"])  # then it is text
    assert command("h", "--reference", "ref")[0] == 0


WRONG = {
    "missing": (("no.txt", "--reference", "ref"), 66, "no.txt: no such file"),
    "names": (("a.txt", "a=b.txt", "--reference", "ref"), 2, "a: two systems of this name; give"),
    "two outputs": (
        ("a.txt", "--reference", "ref", "-o", "r.md", "-o", "r.md"),
        2,
        "written twice",
    ),
    "an input": (("a.txt", "--reference", "ref", "-o", "ref.txt"), 2, "ref.txt: is read"),
    "a figure": (("a.txt", "--reference", "ref", "--scores", "BLEU=a:ref"), 2, "another figure"),
    "repetition": (
        ("a.txt", "--reference", "ref", "--scores", "repeated 4-grams=a:ref"),
        2,
        "another figure",
    ),
    "nothing": (("decode.alpha=1",), 2, "no system: name a model, or a file of translations"),
    "no source": (("model", "--reference", "ref"), 2, "add --source SRC"),
    "output": (("a.txt", "--reference", "ref", "-o", "ref/r.json"), 73, "ref: "),
    "no reference": (("a.txt",), 2, "a.txt: names no test set; add --reference REF"),
}


@pytest.mark.parametrize(("words", "code", "message"), WRONG.values(), ids=list(WRONG))
def test_refusals(
    command: Run, tmp_path: Path, copying: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "ref.txt").symlink_to(tmp_path / "ref")
    shutil.copytree(copying, tmp_path / "model")
    command_code, out, err = command(*words)
    assert (command_code, out) == (code, "")
    assert message in err


@pytest.fixture
def models(tmp_path: Path, copying: Path) -> None:
    """Directories m1, m2 of models that copy words, and a text of their words."""
    shutil.copytree(copying, tmp_path / "m1")
    modeldir.save(modeldir.load(copying), tmp_path / "m2", {"note": b"another model"})
    write(tmp_path / "s", ["w1 w2", "w3", "w4 w1 w2 w3 w1", "", "w2 w2"])


@pytest.mark.usefixtures("models")
def test_models_translate_and_count_pieces(command: Run, tmp_path: Path) -> None:
    words = ("m1", "again=m2", "file=s", "--reference", "s", "--source", "s", "--bounds", "2")
    code, out, err = command(*words, "decode.beam_size=2", "--output-dir", "out", "-o", "r.json")
    assert code == 0, err
    assert "source length in subword pieces of m1" in out
    for name in ("m1", "again", "file"):
        assert (tmp_path / f"out/{name}.txt").read_bytes() == (tmp_path / "s").read_bytes()
    report = read(tmp_path / "r.json")
    assert [system["longest_trained"] for system in report["systems"]] == [30, 30, None]
    assert report["tests"][0]["groups"][0]["pairs"] == 4
    assert report["about"]["systems"]["m1"]["settings"]["decode"]["beam_size"] == 2
    assert report["about"]["systems"]["file"] == {"places": ["s"]}


@pytest.mark.usefixtures("models")
def test_no_text_is_searched_twice(command: Run, tmp_path: Path) -> None:
    """Whatever the test set is called, and whatever is shown, translations are read again."""
    words = ("m1", "--test", "one=s,s", "--test", "two=copy,s", "--bounds", "2")
    write(tmp_path / "copy", read_text(tmp_path / "s"))

    def searched(*words: str) -> int:
        code, _, err = command(*words)
        assert code == 0, err
        return err.count("translating ")

    assert searched(*words) == 1  # for both names of the one text
    (text,) = (tmp_path / "data/translations").glob("*.txt")
    record = json.loads(text.with_suffix(".json").read_bytes())
    assert (record["model"], record["test"]) == ("m1", "one")
    assert record["origin"]["model"] == manifest.sha256_of(tmp_path / "m1" / manifest.NAME)
    again = ("other=m1", "--reference", "s", "--source", "copy", "-o", "r.json", "--sort")
    assert searched(*again) == 0
    assert searched(*again, "decode.alpha=0") == 1
    (tmp_path / "s").write_bytes(b"w1\n" * 5)
    assert searched("m1", "--reference", "s", "--source", "s") == 1

    before = text.read_bytes()
    text.write_bytes(b"Better." + before)
    code, out, err = command(*words)
    assert (code, out) == (65, "")
    assert f"{text.relative_to(tmp_path)}: not as nmt-translate wrote it; move it away" in err
    assert text.read_bytes() == b"Better." + before
    text.rename("mine.txt")
    assert searched(*words) == 1 and text.read_bytes() == before
