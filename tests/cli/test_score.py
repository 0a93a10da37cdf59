"""nmt-score: a line for a pair, in order; of the dev text it says what training said."""

import gzip
import io
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from nmt import api, modeldir
from nmt.cli import score
from nmt.cli.train import main as train
from nmt.modeldir import Trained
from tests.cli.conftest import at_each_batch

Run = Callable[..., tuple[int, bytes, str]]
WORDS = "abcdefghi"
SOURCES = [f"{WORDS[i]} {WORDS[i % 7]} {WORDS[i % 4]}"[: 2 * (i % 4)].strip() for i in range(9)]
TARGETS = [f"{WORDS[i % 5]} {WORDS[i % 8]}"[: 2 * (i % 3)].strip() for i in range(9)]


@pytest.fixture
def nmt_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Arguments and stdin -> exit code, stdout, stderr; of the model that is saved here."""

    def run(*words: object, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = score.main([str(tmp_path / "model"), *map(str, words)])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


@pytest.fixture
def save(of_letters: Callable[..., Trained], tmp_path: Path) -> Callable[..., Trained]:
    """Saves the model that the command reads, of random weights; its window has two lines."""

    def make(*overrides: str) -> Trained:
        made = of_letters(*overrides, "decode.window=2", letters=WORDS)
        modeldir.save(made, tmp_path / "model")
        return made

    return make


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """Two parallel files."""
    return write(tmp_path / "in.de", SOURCES), write(tmp_path / "in.en", TARGETS)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def expected(trained: Trained) -> bytes:
    found = api.score(trained, SOURCES, TARGETS)
    assert len({given.log_prob for given in found}) > 5
    return "".join(f"{given.log_prob:.6f}\t{given.length}\n" for given in found).encode()


def close(some: bytes, other: bytes) -> bool:
    """Whether two outputs are the same but for rounding: other batches have other padding."""
    rows, others = ([r.split(b"\t") for r in each.split(b"\n")[:-1]] for each in (some, other))
    pairs = zip(rows, others, strict=True)
    return all(a[1] == b[1] and abs(float(a[0]) - float(b[0])) < 1e-4 for a, b in pairs)


def test_the_dev_text_has_the_perplexity_of_training(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    draw = random.Random(1)
    for part, count in (("train", 40), ("dev", 30)):
        lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(count)]
        unheard = [line.replace("a", "ä") if part == "dev" else line for line in lines]
        write(tmp_path / f"{part}.de", lines)
        write(tmp_path / f"{part}.en", [line[::-1] for line in unheard])
    tiny = ["model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=1"]
    tiny += ["model.decoder_layers=1", "trainer.max_steps=6", "trainer.batch_tokens=80"]
    tiny += ["trainer.device=cpu", "trainer.threads=1", "trainer.tensorboard=false"]
    data = ["data=files", f"data.root={tmp_path}", "segmenter.merges=5", "segmenter.tokenizer=none"]
    assert train([*data, *tiny, f"runs={tmp_path}", "name=run"]) == 0
    perplexity = modeldir.load(tmp_path / "run").facts["dev_perplexity"]

    pair = [str(tmp_path / "dev.de"), str(tmp_path / "dev.en")]
    capfdbinary.readouterr()
    assert score.main([str(tmp_path / "run"), *pair, "--device=cpu"]) == 0
    rows = [line.split(b"\t") for line in capfdbinary.readouterr().out.split(b"\n")[:-1]]
    loss = -sum(float(row[0]) for row in rows) / sum(int(row[1]) for row in rows)
    assert len(rows) == 30 and math.log(perplexity) > 1
    assert loss == pytest.approx(math.log(perplexity), abs=1e-5)

    assert score.main([str(tmp_path / "run"), *pair, "--tokens", "--device=cpu"]) == 0
    objects = list(map(json.loads, capfdbinary.readouterr().out.splitlines()))
    log_probs = [each for found in objects for each in found["log_probs"]]
    assert -sum(log_probs) / len(log_probs) == pytest.approx(math.log(perplexity), abs=1e-5)
    assert any("<unk>" in found["pieces"] for found in objects)


def test_a_line_for_a_pair(
    nmt_score: Run, save: Callable[..., Trained], texts: tuple[Path, Path]
) -> None:
    whole = expected(save())
    code, out, err = nmt_score(*texts)
    assert code == 0 and close(out, whole), err
    packed = texts[0].with_name("in.gz")
    packed.write_bytes(gzip.compress(texts[0].read_bytes()))
    assert nmt_score(packed, "-", stdin=texts[1].read_bytes())[:2] == (0, out)
    assert nmt_score(packed, "-", stdin=packed.read_bytes())[:2] == (65, b"")
    assert nmt_score("-", texts[1], stdin=b"\xef\xbb\xbf" + texts[0].read_bytes())[1] == out
    file = texts[0].with_name("out")
    assert nmt_score(*texts, "-o", file)[:2] == (0, b"")
    assert file.read_bytes() == out
    assert close(nmt_score(*texts, "--batch-tokens", 12)[1], whole)
    code, found, err = nmt_score(*texts, "--batch-tokens", 2)  # a pair too long costs no other
    assert code == 65 and b"\n\n" in b"\n" + found and b"\t" in found
    assert "left empty" in err
    empty = write(texts[0].with_name("none"), [])
    assert nmt_score(empty, empty)[:2] == (0, b"")


def test_the_next_command_goes_on(
    nmt_score: Run, save: Callable[..., Trained], texts: tuple[Path, Path]
) -> None:
    """After Ctrl-C in the third window; a pair of the second one was too long."""
    save("encoding=learned", "encoding.learned.size=3", "data.max_length=2")
    _, whole, said = nmt_score(*texts)
    output, batches = texts[0].with_name("out"), list[int]()

    def stop(ids: Tensor) -> None:
        batches.append(len(ids))
        if len(batches) == 3:
            raise KeyboardInterrupt

    with at_each_batch(stop):
        code, _, err = nmt_score(*texts, "-o", output)
    assert code == 130 and "out.part: keeps the 4 lines done so far" in err
    for odd, message in (
        ([*texts, "--tokens"], "its 4 lines were made with --tokens=False, now True"),
        ([texts[0], texts[0]], "its 4 lines were made with another text"),
    ):
        code, _, err = nmt_score(*odd, "-o", output)
        assert code == 2 and message in err and err.count("\n") == 1
    with at_each_batch(stop):
        code, _, again = nmt_score(*texts, "-o", output)
    assert code == 65 and "out.part: goes on after 4 lines" in again
    assert "left empty: 2 (first: line 4; longest: 3 pieces)" in again and said in again
    assert output.read_bytes() == whole
    assert batches == [2, 1, 2, 2, 1]  # an empty source is not shown
    assert sorted(path.name for path in output.parent.iterdir()) == [
        *("in.de", "in.en", "model", "out")
    ]


def test_columns_stand_beside_the_source(
    nmt_score: Run, save: Callable[..., Trained], tmp_path: Path
) -> None:
    save("encoding=spr_relative")
    sources, targets = write(tmp_path / "a", ["a b c"] * 3), write(tmp_path / "b", ["a"] * 3)
    heads = write(tmp_path / "heads", ["0 1 2", "2 0 2", "0 1 2"])
    code, out, err = nmt_score(sources, targets, "--columns", f"heads={heads}")
    first, second, third = (float(line.split(b"\t")[0]) for line in out.split(b"\n")[:-1])
    assert code == 0 and first == pytest.approx(third, abs=1e-5), err
    assert abs(second - first) > 1e-3
    code, _, err = nmt_score(sources, targets)
    assert code == 2 and "give --columns heads=FILE" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-", "x", "--columns", "a=-"], 2, "-: stdin can be one of the texts only"),
        (["x", "y"], 66, "x: no such file"),
        (["-", "/dev/null", "-o", "/no/where"], 73, "/no/where: No such file"),
    ],
)
def test_wrong_arguments(nmt_score: Run, words: list[str], code: int, message: str) -> None:
    found, out, err = nmt_score(*words)
    assert (found, out) == (code, b"") and message in err and err.count("\n") == 1
