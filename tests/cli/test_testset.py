"""nmt-recipe testset: what it writes, what it shows, and what it refuses."""

import gzip
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.cli import recipe
from nmt.data.corpus import read_text
from nmt.data.joined import parts_of
from nmt.storage import manifest

Run = Callable[..., tuple[int, str, str]]
DE = {"a": ["eins", "zwei drei vier", ""], "b": ["fünf sechs", "sieben"]}
EN = {"a": ["one", "two three four", "more"], "b": ["five six", "seven"]}
BOTH = "out --source a.de b.de --reference a.en b.en"


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Words -> exit code, stdout, stderr; run among the files of two test sets."""
    for code, sets in (("de", DE), ("en", EN)):
        for name, lines in sets.items():
            write(tmp_path / f"{name}.{code}", lines)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = recipe.main(["testset", *(w for part in words for w in shlex.split(part))])
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
        return (code, *capsys.readouterr())

    return run


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def test_several_sets_as_one(command: Run, tmp_path: Path) -> None:
    code, out, err = command(BOTH, "--name newstest_all -k 1")
    assert code == 0, err
    assert "wrote out/newstest_all.de" in err and "Moses" not in out
    assert read_text(tmp_path / "out/newstest_all.en") == EN["a"] + EN["b"]
    code, out, err = command(BOTH, "--name concat_seq")
    assert code == 0, err
    assert out == (
        "a: 3 lines\nb: 2 lines\nconcat_seq: 3 lines\n"
        "concat_seq: Moses reads 0 of 3 lines (0.0%) otherwise than their sentences: "
        "0 sources, 0 references\n"
    )
    assert "a.de: empty lines: 1; they stay" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"{name}.{ending}"
        for name in ("concat_seq", "newstest_all")
        for ending in ("de", "en", "json")
    ]
    joined = ["eins zwei drei vier", " fünf sechs", "sieben"]
    assert read_text(tmp_path / "out/concat_seq.de") == joined
    assert command(BOTH, "--name three -k 3")[0] == 0
    assert read_text(tmp_path / "out/three.de")[1] == "fünf sechs sieben"


def test_join(command: Run, tmp_path: Path) -> None:
    (tmp_path / "a.de.gz").write_bytes(gzip.compress((tmp_path / "a.de").read_bytes()))
    code, out, err = command("out --name two --source a.de.gz --reference a.en")
    assert code == 0, err
    assert out.startswith("a: 3 lines\ntwo: 2 lines\n")
    assert read_text(tmp_path / "out/two.de") == ["eins zwei drei vier", ""]
    assert parts_of(tmp_path / "out/two.de", tmp_path / "out/two.en") == [
        (DE["a"][:2], EN["a"][:2]),
        (DE["a"][2:], EN["a"][2:]),
    ]


def test_lines_tokenised_otherwise_are_counted(command: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.de", ["zwei Kinder.", "die Frau.", "Ein Haus.", "Der Hund.", "Rest."])
    write(tmp_path / "a.en", ["two children.", "the woman.", "One house.", "the dog.", "Rest."])
    code, out, err = command("out --name two --source a.de --reference a.en")
    assert code == 0, err
    told = (
        "Moses reads 2 of 3 lines (66.7%) otherwise than their sentences: 1 sources, 2 references"
    )
    assert out.endswith(f"two: {told}\n")
    record = manifest.parse((tmp_path / "out/two.json").read_bytes(), tmp_path)
    assert record["seams"] == {"source": 1, "reference": 2, "lines": 2}
    code, out, err = command("out --name one -k 1 --source a.de --reference a.en")
    assert code == 0 and "Moses" not in out


def test_documents_are_kept_apart(command: Run, tmp_path: Path) -> None:
    write(tmp_path / "docs", ["x", "y", "y"])
    words = "out --name two --source a.de --reference a.en --documents"
    code, _, err = command(words, "docs")
    assert code == 0
    assert "2 documents" in err
    assert read_text(tmp_path / "out/two.en") == ["one", "two three four more"]
    record = manifest.parse((tmp_path / "out/two.json").read_bytes(), tmp_path)
    assert record["about"]["documents"] == 2
    assert [entry["path"] for entry in record["about"]["inputs"]] == ["a.de", "a.en", "docs"]
    code, _, err = command(words, "b.de")
    assert code == 65
    assert err.endswith("nmt: b.de: names the documents of 2 lines, but the test set has 3\n")


def test_languages(command: Run, tmp_path: Path) -> None:
    words = "out --name two --source a.de --reference a.en"
    assert command(words, "--source-language deu --target-language eng")[0] == 0
    assert (tmp_path / "out/two.deu").exists()
    assert (tmp_path / "out/two.eng").exists()
    (tmp_path / "b.de").rename(tmp_path / "b.src")
    code, _, err = command(BOTH.replace("b.de", "b.src"), "--name x")
    assert code == 2
    assert "a.de, b.src: the names do not end in one language; give --source-language" in err
    assert command(BOTH.replace("b.de", "b.src"), "--name x --source-language de")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("", 2, "required: DIR, --name, --source, --reference"),
        ("out --name x --source a.de b.de --reference a.en", 2, "2 sources, but 1 references"),
        ("out --name x --source a.de --reference b.en", 65, "b.en: has 2 lines, but a.de has 3"),
        (
            "out --name x --source a.de a.de --reference a.en a.en",
            2,
            "a: two test sets of this name",
        ),
        (f"{BOTH} --name x -k 0", 2, "-k: 0: expected an integer from 1"),
        (f"{BOTH} --name ../x", 2, "no name for a file"),
        (f"{BOTH} --name x --source-language en", 2, "two files of one name"),
        (". --source a.de --reference a.en --name a", 73, "a.de: is an input"),
        ("out --name x --source no.de --reference a.en", 66, "no.de: no such file"),
    ],
)
def test_what_is_refused(command: Run, tmp_path: Path, words: str, code: int, told: str) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    found, out, err = command(words)
    assert (found, out) == (code, "")
    assert told in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_sets_that_seem_not_to_belong_together(command: Run) -> None:
    _, _, err = command("out --name x --source a.de --reference b.en")
    assert "a.de and b.en: taken for one test set" in err


def test_help_is_complete(command: Run) -> None:
    code, out, _ = command("--help")
    assert code == 0
    for word in ("NAME.json", "tokenises", "--by-sentence", "--documents", "-k"):
        assert word in out
