"""The files of a corpus: compressed, columns of tables, and text that is held out of another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from nmt.config.data import Data
from nmt.corpus.prepare import fingerprint, prepare
from nmt.corpus.report import log_counts
from nmt.errors import Exit, UserError
from tests.composing import settings_of


def corpus(root: Path, lines: int = 40, **changes: Any) -> Data:
    """Each pair twice, 20 apart, and no development text."""
    (root / "train.de").write_bytes(b"".join(b"ein Haus %d\r\n" % (i % 20) for i in range(lines)))
    (root / "train.en").write_bytes(b"".join(b"a house %d\n" % (i % 20) for i in range(lines)))
    given = ("data=files", f"data.root={root}", f"data.cache={root}/cache", "data.dev_lines=4")
    data = settings_of(*given).data
    return replace(data, **changes)


def test_pairs_are_held_out_of_what_training_would_keep(tmp_path: Path) -> None:
    """None of them is in the training text, wherever it occurs; all numbers stay those of lines."""
    data, segmenter = corpus(tmp_path, dev_lines=3), settings_of().segmenter
    for path in map(Path, (data.train_source, data.train_target)):
        lines = path.read_bytes().split(b"\n")
        for row, junk in ((0, b""), (10, b"x9 " * 9000), (20, b"x " * 101), (30, b"")):
            lines[row] = junk  # where a division by lines would look
        path.write_bytes(b"\n".join(lines))
    made = prepare(data, segmenter)
    dropped = [1, 11, 21, 31]
    kept = [line for line in range(1, 41) if line not in dropped]
    assert made.dev.lines.tolist() == [kept[36 * n // 3] for n in range(3)]
    held = {(line - 1) % 20 for line in made.dev.lines.tolist()}
    assert made.train.lines.tolist() == [n for n in kept if (n - 1) % 20 not in held]
    for store in (made.train, made.dev):
        for i, line in enumerate(store.lines.tolist()):
            source, target = (ids.tolist() for ids in store.pair(i))
            assert made.source.text(source) == f"ein Haus {(line - 1) % 20}"
            assert made.target.text(target) == f"a house {(line - 1) % 20}"
    counts = made.report["train"]
    assert counts["kept"]["pairs"] == len(made.train)
    assert counts["kept"]["source_tokens"] == made.train.lengths["source"].sum()
    assert {why: c["pairs"] for why, c in counts["dropped"].items() if c["pairs"]} == {
        "empty side": 2, "too long": 2, "held out": 36 - len(made.train),
    }  # fmt: skip
    assert made.report["dev"]["kept"]["pairs"] == 3 and made.report["dev"]["known"] == 0


def test_errors_name_the_line_of_the_text_that_was_given(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    lines = Path(data.train_target).read_bytes().split(b"\n")
    for row in (20, 21):  # one is held out
        spoilt = [*lines[:row], b"a \xff", *lines[row + 1 :]]
        Path(data.train_target).write_bytes(b"\n".join(spoilt))
        with pytest.raises(UserError) as e:
            prepare(data, segmenter)
        assert str(e.value).startswith(f"{tmp_path}/train.en:{row + 1}: byte 2 ")


def test_borders_of_documents_are_not_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = corpus(tmp_path)
    for path in map(Path, (data.train_source, data.train_target)):
        lines = path.read_bytes().splitlines()
        path.write_bytes(
            b"".join((b"" if i % 10 == 0 else line) + b"\n" for i, line in enumerate(lines))
        )
    with caplog.at_level("INFO"):
        prepared = prepare(data, settings_of().segmenter)
        log_counts(prepared.report)
    assert prepared.dev.lines.tolist() == [2, 12, 22, 32]  # the lines after 1, 11, 21 and 31
    said = "train text: 32 of 36 pairs kept; dropped: empty side 11.1 %; held out: 4"
    assert said in caplog.messages


def test_too_many_lines_are_refused_and_absent_text_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"dev_lines=21: 40 pairs of the training text are kept; hold out half"
    ) as e:
        prepare(corpus(tmp_path, dev_lines=21), settings_of().segmenter)
    assert e.value.code == Exit.DATA and not [*(tmp_path / "cache").glob("*/")]
    absent: dict[str, Any] = {"dev_lines": None, "dev_source": "dev.de", "dev_target": "dev.en"}
    with pytest.raises(UserError, match=r"or hold out lines .*: data\.dev_lines=N") as e:
        prepare(corpus(tmp_path, **absent), settings_of().segmenter)
    assert e.value.code == Exit.NO_INPUT


def test_compressed_sides_are_read(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    plain = fingerprint(data, segmenter)
    for name in ("train.de", "train.en"):
        path = tmp_path / name
        path.with_name(f"{name}.zst").write_bytes(zstd.compress(path.read_bytes()))
        path.unlink()
    assert fingerprint(data, segmenter) == plain == prepare(data, segmenter).facts["fingerprint"]
