"""nmt-translate: what it writes, what it refuses, and how it fails."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from tests.cli.conftest import Run

ROOT = Path(__file__).parent.parent.parent
FIXED = "a trained model is fixed; only decode.<key>=<value> may change"


def test_a_line_for_a_line(nmt_translate: Run) -> None:
    code, out, _ = nmt_translate(stdin=b"w1 w2\r\n\nw3\n   \nw4")
    assert (code, out) == (0, b"w1 w2\n\nw3\n\nw4\n")
    assert nmt_translate(stdin=b"")[:2] == (0, b"")
    assert nmt_translate("-", stdin=b"\n")[:2] == (0, b"\n")


@pytest.mark.parametrize("codec", ["utf-16", "utf-32-be"])
def test_wide_text_is_named_on_stdin(nmt_translate: Run, codec: str) -> None:
    """Read as UTF-8 it would be translated letter by letter, or be all U+FFFD."""
    for text in ("w1 w2\nw3\n", "w1"):
        code, out, err = nmt_translate(stdin=text.encode(codec))
        assert (code, out) == (65, b"")
        assert "nmt: stdin: is UTF-16 or UTF-32" in err and err.count("\n") == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_compressed_text_is_named_on_stdin(
    nmt_translate: Run, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Read as UTF-8 it would be a few lines of U+FFFD."""
    for lines in (b"w1 w2\n" * 50, b"w1", b"".join(b"w%d w3\n" % i for i in range(5000))):
        code, out, err = nmt_translate(stdin=pack(lines))
        assert (code, out) == (65, b"")
        assert "nmt: stdin: is compressed by " in err and err.count("\n") == 1
    (tmp_path / "in").write_bytes(gzip.compress(b"w1\n\nw2"))
    assert nmt_translate(str(tmp_path / "in"))[:2] == (0, b"w1\n\nw2\n")


def test_a_line_ends_at_lf_alone(nmt_translate: Run) -> None:
    inside = "w1\rw2\x0b\x0c\x1c\x85\u2028\u2029w3\n".encode()
    code, out, _ = nmt_translate(stdin=b"\xef\xbb\xbfw1\n" + inside * 4)
    assert code == 0
    assert out.startswith(b"w1\n")
    assert out.count(b"\n") == 5
    assert not set(out.decode()) & set("\r\x0b\x0c\x1c\x85\u2028\u2029")


def test_scores_n_best_and_json(nmt_translate: Run) -> None:
    code, out, _ = nmt_translate("--scores", stdin=b"w1\n\n")
    assert code == 0
    scored = [line.split(b"\t") for line in out.split(b"\n")]
    assert [text for _, text in scored[:2]] == [b"w1", b""]
    assert float(scored[0][0]) < 0
    assert scored[1] == [b"0.0000", b""]

    code, out, _ = nmt_translate("--n-best", "2", stdin=b"w1 w2\n\nw3\n")
    assert code == 0
    fields = [line.split(b"\t") for line in out.split(b"\n")[:-1]]
    assert [f[:2] for f in fields] == [
        [b"1", b"1"], [b"1", b"2"], [b"2", b"1"], [b"3", b"1"], [b"3", b"2"],
    ]  # fmt: skip
    assert [f[3] for f in fields if f[1] == b"1"] == [b"w1 w2", b"", b"w3"]
    assert float(fields[0][2]) >= float(fields[1][2])

    code, out, _ = nmt_translate("--json", "--n-best=2", stdin="w1\t\u00e9\u2028\n\n".encode())
    assert code == 0
    objects = [json.loads(line) for line in out.split(b"\n")[:-1]]
    assert [o["line"] for o in objects] == [1, 2]
    assert objects[0]["source"] == "w1\t\u00e9\u2028"
    assert len(objects[0]["translations"]) == 2
    assert objects[1] == {"line": 2, "source": "", "translations": [{"text": "", "score": 0.0}]}


def test_alignments(nmt_translate: Run) -> None:
    text, hard, soft = b"w1  w2\n\nw3\n", ("--alignment", "hard"), ("--alignment", "soft")
    plain = nmt_translate(*hard, stdin=text)
    assert plain[:2] == (0, b"w1 w2 ||| 0-0 1-1\n ||| \nw3 ||| 0-0\n")
    assert nmt_translate(*hard, "--workers", "2", stdin=text) == plain
    weights = b"w1 w2 ||| 1.0,0.0,0.0 0.0,1.0,0.0\n ||| \nw3 ||| 1.0,0.0\n"
    assert nmt_translate(*soft, stdin=text)[1] == weights
    assert nmt_translate(*hard, "--scores", stdin=b"w3")[1].endswith(b"\tw3 ||| 0-0\n")
    for how, name, value in ((hard, "alignment", [[0, 0]]), (soft, "attention", [[1.0, 0.0]])):
        ((best),) = json.loads(nmt_translate(*how, "--json", stdin=b"w3")[1])["translations"]
        assert best[name] == value and set(best) == {"text", "score", name}


def test_every_directory_is_a_model_and_a_file_the_input(
    command: Run, copying: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        shutil.copytree(copying, name)
    Path("in.txt").write_bytes(b"w1 w2\n\nw3\n")
    words = ("a", "b", "in.txt", "decode.beam_size=2", "c", "--scores")
    code, out, err = command(*words)
    assert code == 0, err
    assert [line.split(b"\t")[1] for line in out.splitlines()] == [b"w1 w2", b"", b"w3"]
    for name in ("c", "b", "a"):
        Path(name, "facts.json").unlink()
        code, _, err = command(*words)
        assert (code, f"nmt: {name}/facts.json: " in err) == (65, True), err
    code, _, err = command("a", "none", "in.txt")
    assert (code, "none, in.txt: two inputs, as neither" in err) == (2, True)


def test_target_prefixes_stand_beside_the_input(nmt_translate: Run, tmp_path: Path) -> None:
    beside = tmp_path / "begin.gz"
    beside.write_bytes(gzip.compress(b"w5\n\nw3 w7\n"))
    words = ("--target-prefix", str(beside), "decode.max_length_offset=1")
    code, out, err = nmt_translate(*words, stdin=b"w1 w2\nw4\nw3 w6\n")
    assert (code, out) == (0, b"w5 w2\nw4\nw3 w7\n"), err  # it copies, place by place
    code, _, err = nmt_translate(*words, stdin=b"w1 w2\nw4\n")
    assert (code, "the text: only 2 lines" in err) == (65, True)


def test_bytes_that_are_no_utf8_are_counted(nmt_translate: Run) -> None:
    bad = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"]
    code, out, err = nmt_translate(stdin=b"w1\n" + b"\n".join(bad) + b"\nw2")
    assert code == 0
    assert out.count(b"\n") == len(bad) + 2
    assert "stdin: lines that are not UTF-8: 6 (first: line 2)" in err
    assert err.count("UTF-8") == 1
    code, out, _ = nmt_translate("--json", stdin=b"w1 \xffw2\n")
    assert json.loads(out)["source"] == "w1 \ufffdw2"


def test_files_and_gz(nmt_translate: Run, tmp_path: Path) -> None:
    plain, packed, output = tmp_path / "a", tmp_path / "a.gz", tmp_path / "out"
    plain.write_bytes(b"w1\n\nw2\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        assert nmt_translate(str(path), "-o", str(output), "decode.beam_size=1")[:2] == (0, b"")
        assert output.read_bytes() == b"w1\n\nw2\n"
        assert sorted(os.listdir(tmp_path)) == ["a", "a.gz", "out"]  # noqa: PTH208
    assert nmt_translate(str(plain), "-o", "/dev/null")[:2] == (0, b"")


def test_a_damaged_gz_never_gets_the_final_name(nmt_translate: Run, tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"w%d w%d\n" % (i % 40, i % 7) for i in range(1000)))
    damaged, output = tmp_path / "a.gz", tmp_path / "out"
    damaged.write_bytes(whole[:-20])
    output.write_bytes(b"former\n")
    code, _, err = nmt_translate(str(damaged), "-o", str(output), "decode.window=99")
    assert code == 65
    assert str(damaged) in err
    assert output.read_bytes() == b"former\n"
    done = (tmp_path / "out.part").read_bytes().count(b"\n")
    assert 0 < done < 1000
    assert f"out.part: keeps the {done} lines done so far" in err


def test_lines_that_are_refused_are_empty_and_end_in_65(nmt_translate: Run, tmp_path: Path) -> None:
    lines, output = b"w1\nw1 w2 w3\nw4\nw5\nw6\n", tmp_path / "out"
    most, refuse = "decode.max_source=2", "decode.too_long=refuse"
    code, out, err = nmt_translate(most, refuse, stdin=lines)
    assert (code, out) == (65, b"w1\n\nw4\nw5\nw6\n")
    assert "left empty: 1 (first: line 2; longest: 3 pieces)" in err
    code, _, again = nmt_translate(most, refuse, "-o", str(output), stdin=lines)
    assert (code, output.read_bytes(), again) == (65, out, err)
    code, out, err = nmt_translate(most, stdin=lines)  # as conf/ has it
    assert (code, out) == (0, lines)
    assert "translated in parts: 1 (first: line 2; longest: 3 pieces)" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.dim=3"], f"model.dim=3: {FIXED}"),
        (["decode.beamsize=3"], "decode.beamsize: no such key; did you mean decode.beam_size?"),
        (["decode.beam_size=x"], "decode.beam_size=x: expected an integer"),
        (["decode.too_long=crop"], "decode.too_long=crop: choose one of split, refuse, truncate"),
        (["decode.alpha=${seed}"], "decode.alpha=${seed}: expected a number"),
        (["--n-best", "9"], "--n-best 9: the beam holds 2; add decode.beam_size=9"),
        (
            ["-", "b"],
            "-, b: two inputs, as neither is the directory of a model; give one, or join them: "
            "cat A B | ...",
        ),
    ],
)  # fmt: skip
def test_wrong_words(nmt_translate: Run, words: list[str], message: str) -> None:
    assert nmt_translate(*words) == (2, b"", f"nmt: {message}\n")


def test_a_model_directory_is_all_it_needs(command: Run, copying: Path, tmp_path: Path) -> None:
    code, out, err = command(str(tmp_path / "none"))
    assert (code, out, err.count("\n")) == (66, b"", 1)
    moved = shutil.copytree(copying, tmp_path / "moved")
    code, out, _ = command(str(moved), "--threads=1", "--device", "cpu", stdin=b"w1 abc\n\nw2\n")
    assert (code, out.count(b"\n"), out.split(b"\n")[1:3]) == (0, 3, [b"", b"w2"])
    code, out, err = command(str(moved), "--device=tpu")
    assert (code, out, err.count("\n")) == (2, b"", 1)
    code, _, err = command(str(moved), "-o", str(tmp_path / "no" / "out"))
    assert (code, err.count("\n")) == (73, 1)
