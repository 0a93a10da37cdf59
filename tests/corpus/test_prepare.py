"""A corpus is prepared once, whole or not at all, the same with any number of processes."""

import json
import logging
import threading
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from nmt.config.data import Data, Segmentation
from nmt.corpus import scan
from nmt.corpus.prepare import IRRELEVANT_KEYS, Prepared, fingerprint, load, prepare
from nmt.corpus.report import describe
from nmt.corpus.steps import Preparation
from nmt.errors import Exit, UserError
from tests.composing import settings_of

BPE = Segmentation("bpe", tokenizer="none", merges=20, min_frequency=2, shared_vocabulary=False)
UNIGRAM = Segmentation(
    "unigram",
    tokenizer="none",
    vocabulary_size=30,
    character_coverage=1.0,
    training_lines=0,
    shared_vocabulary=False,
)
TRAIN = [(f"hund {i} lauft", f"dog {i} runs fast") for i in range(40)]
DEV = [("hund 3", "dog 3"), ("hund " * 30, "dog"), ("", "nothing"), ("katze 7", "dog 7")]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def corpus(tmp_path: Path, train: list[tuple[str, str]] = TRAIN, **more: Any) -> Data:
    """Write a corpus and give the config that names it."""
    paths = dict[str, str]()
    for split, pairs in (("train", train), ("dev", DEV)):
        for side, name in enumerate(("source", "target")):
            path = tmp_path / f"{split}.{'de' if side == 0 else 'en'}"
            path.write_bytes(text([pair[side] for pair in pairs]))
            paths[f"{split}_{name}"] = str(path)
    data = settings_of("data=files", "data.root=x").data
    small = {"name": "tiny", "max_length": 20, "max_line_bytes": 500, "workers": 1}
    places = {"root": str(tmp_path), "cache": str(tmp_path / "cache")}
    return replace(data, **{**small, **places, **paths, **more})


def cached(data: Data) -> list[str]:
    return sorted(p.name for p in Path(data.cache).glob("*") if not p.name.endswith(".lock"))


def contents(prepared: Prepared) -> dict[str, bytes]:
    root = prepared.path
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("segmenter", [BPE, UNIGRAM], ids=["bpe", "unigram"])
def test_text_goes_in_and_comes_out(tmp_path: Path, segmenter: Segmentation) -> None:
    prepared = prepare(corpus(tmp_path), segmenter)
    assert prepared.train.lines.tolist() == list(range(1, 41))
    for i, (source, target) in enumerate(TRAIN):
        ids = prepared.train.pair(i)
        assert prepared.source.text(ids[0].tolist()) == source
        assert prepared.target.text(ids[1].tolist()) == target
        assert ids[0].tolist() == prepared.source.ids(source)
    assert prepared.dev.lines.tolist() == [1, 2, 4]  # long pairs stay, empty ones do not
    assert prepared.facts["train_pairs"] == 40
    assert prepared.facts["train_source_tokens"] == prepared.train.lengths["source"].sum()
    assert prepared.facts["train_target_tokens"] == prepared.train.lengths["target"].sum()
    assert prepared.facts["longest_source"] == prepared.train.lengths["source"].max()
    assert prepared.facts["longest_target"] == prepared.train.lengths["target"].max()
    assert str(tmp_path) not in json.dumps([prepared.facts, prepared.report])


def test_every_pair_is_accounted_for(tmp_path: Path) -> None:
    data = corpus(tmp_path, invalid_utf8="drop")
    extra = [
        (b"", b"empty source"),
        (b"leer \xe2\x80\xa8", b"\xc2\xa0"),
        (b"\xff", b"invalid"),
        (b"too " * 200, b"many bytes"),
        (b"zu lang " * 20, b"too long"),
        (b"e\xcc\x81 \xc2\x93hund\xc2\x94\r", b"\xef\xbb\xbfdog\xc2\xad 3"),
    ]
    for side, path in enumerate((data.train_source, data.train_target)):
        with Path(path).open("ab") as file:
            file.write(b"".join(pair[side] + b"\n" for pair in extra))
    prepared = prepare(data, BPE)
    report = prepared.report
    train = report["train"]
    dropped = {why: counts["pairs"] for why, counts in train["dropped"].items()}
    assert dropped == {
        "empty side": 2,
        "too long": 1,
        "too many bytes": 1,
        "invalid UTF-8": 1,
        "unlike lengths": 0,
        "held out": 0,
    }
    assert prepared.train.lines.tolist() == [*range(1, 41), 46]
    for split, lines in (("train", 46), ("dev", 4)):
        found = report[split]
        assert found["total"]["pairs"] == lines
        for measure, total in found["total"].items():
            lost = sum(counts[measure] for counts in found["dropped"].values())
            assert total == found["kept"][measure] + lost
            rows = found["by_source_length"].values()
            assert found["kept"][measure] == sum(row[measure] for row in rows)
    assert train["kept"]["source_tokens"] == prepared.train.lengths["source"].sum()
    assert report["dev"]["unknown_share"]["source"] > 0  # "katze" has new characters
    shown = describe(report)
    assert "dropped: too long" in shown and "46" in shown


def test_second_call_does_no_work(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    first = prepare(data, BPE)
    written = {path: path.stat().st_mtime_ns for path in first.path.rglob("*")}
    moved: dict[str, Any] = {
        f"{s}_{side}": "" for s in ("train", "dev") for side in ("source", "target")
    }
    for key in moved:
        path = Path(getattr(data, key))
        moved[key] = str(path.rename(path.with_name("moved." + path.name)))
    elsewhere = replace(data, root="other", workers=2, **moved)  # not what matters
    assert prepare(elsewhere, BPE).path == first.path
    assert {path: path.stat().st_mtime_ns for path in first.path.rglob("*")} == written


def test_every_setting_that_matters_makes_another_corpus(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    first = fingerprint(data, BPE)
    assert prepare(data, BPE).facts["fingerprint"] == first
    others: dict[str, Any] = {
        "source_language": "nl",
        "target_language": "nl",
        "max_length": 19,
        "max_ratio": 9.5,
        "normalize": "nfkc",
        "invalid_utf8": "drop",
        "max_line_bytes": 499,
        "user_symbols": ["hund"],
        "dev_lines": 3,
    }
    named = {field.name for field in fields(Data)}
    assert named == {*others, *IRRELEVANT_KEYS, "kind"}  # a new setting must be placed
    digests = [first, *(fingerprint(replace(data, **{k: v}), BPE) for k, v in others.items())]
    segmenters: dict[str, Any] = {"merges": 19, "min_frequency": 3, "shared_vocabulary": True}
    digests += [fingerprint(data, replace(BPE, **{k: v})) for k, v in segmenters.items()]
    for pair in (("hund 17 lauft!", TRAIN[17][1]), (TRAIN[17][0], "the dog 17 runs?")):
        changed = [*TRAIN]
        changed[17] = pair
        digests.append(fingerprint(corpus(tmp_path, changed), BPE))
    assert len({*digests}) == len(digests)


@pytest.mark.parametrize("segmenter", [BPE, UNIGRAM], ids=["bpe", "unigram"])
def test_processes_change_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    segmenter: Segmentation,
) -> None:
    monkeypatch.setattr(scan, "CHUNK", 7)
    data = corpus(tmp_path)
    one = contents(prepare(data, segmenter))
    with caplog.at_level(logging.INFO):
        two = prepare(replace(data, workers=2, cache=str(tmp_path / "two")), segmenter)
    assert contents(two) == one and "with 2 processes" in caplog.text
    monkeypatch.undo()
    whole = prepare(replace(data, cache=str(tmp_path / "whole")), segmenter)
    assert contents(whole) == one  # nor does where the chunks are cut


def test_an_error_in_a_process_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "CHUNK", 7)
    data = corpus(tmp_path, workers=2)
    lines = Path(data.train_target).read_bytes().split(b"\n")
    lines[20] = b"dog\xe9"
    Path(data.train_target).write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match=r"train\.en:21: byte 3 .*\\xe9; .*invalid_utf8=drop") as e:
        prepare(data, BPE)
    assert e.value.code == Exit.DATA
    assert cached(data) == []


@pytest.mark.parametrize(
    ("spoil", "words", "code"),
    [
        ("missing", r"train\.de: no such file; set data\.root or data\.train_source", 66),
        ("empty", r"train\.de: is empty", 65),
        ("unequal", r"train\.de: 39 lines, .*train\.en: 40; the two must be parallel", 65),
    ],
)
def test_unusable_input_is_refused_before_anything_is_written(
    tmp_path: Path, spoil: str, words: str, code: int
) -> None:
    data = corpus(tmp_path)
    path = Path(data.train_source)
    lines = path.read_bytes().split(b"\n")
    path.unlink()
    if spoil != "missing":
        path.write_bytes(b"" if spoil == "empty" else b"\n".join(lines[1:]))
    with pytest.raises(UserError, match=words) as caught:
        prepare(data, BPE)
    assert caught.value.code == code
    assert not Path(data.cache).exists()


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    data = corpus(tmp_path, max_length=1)
    words = "no pair of the train text is left; most are dropped as too long; see data.max_length"
    with pytest.raises(UserError, match=words) as caught:
        prepare(data, replace(BPE, merges=0))
    assert caught.value.code == Exit.DATA
    assert cached(data) == []


def test_files_of_a_user_stay(tmp_path: Path) -> None:
    """Beside prepared corpora, and in one that must be made anew."""
    data = corpus(tmp_path)
    precious, lock = (Path(data.cache) / name for name in ("poetry.tmp-final/p.txt", "poetry.lock"))
    precious.parent.mkdir(parents=True)
    for path in (precious, lock):
        path.write_bytes(b"precious")
    prepared = prepare(data, BPE)
    assert (precious.read_bytes(), lock.read_bytes()) == (b"precious", b"precious")
    good, notes = contents(prepared), prepared.path / "train/notes.txt"
    notes.write_bytes(b"precious")
    assert prepare(data, BPE).path == prepared.path and load(prepared.path)  # it is no damage
    path = prepared.path / "train" / "source.ids"
    path.write_bytes(path.read_bytes()[:-2])
    assert contents(prepare(data, BPE)) == good
    damaged = prepared.path.with_name(f"corrupt.{prepared.path.name}")
    assert (damaged / "train/notes.txt").read_bytes() == b"precious"


def test_second_run_waits_for_the_first(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    name = prepare(replace(data, cache=str(tmp_path / "other")), BPE).path.name
    cache = Path(data.cache)
    cache.mkdir()
    runs = [threading.Thread(target=prepare, args=(data, BPE)) for _ in range(2)]
    with FileLock(cache / f"{name}.lock"):
        for run in runs:
            run.start()
        time.sleep(0.3)
        assert cached(data) == []
    for run in runs:
        run.join()
    assert cached(data) == [name]


def test_odd_lines_stay_one_line_each(tmp_path: Path) -> None:
    odd = [f"a{c}b" for c in "\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\x00\t\ufeff\u200b\u2581"]
    prepared = prepare(corpus(tmp_path, [(one, one) for one in odd]), BPE)
    assert prepared.train.lines.tolist() == list(range(1, len(odd) + 1))
    texts = [prepared.source.text(prepared.train.pair(i)[0].tolist()) for i in range(len(odd))]
    assert texts == ["a b"] * 12 + ["ab", "ab", "a_b"]


def test_training_lines_limits_what_unigram_sees(tmp_path: Path) -> None:
    train = [*TRAIN, ("", "xx"), *((f"{c}", "yy") for c in "qvwz")]
    few = prepare(corpus(tmp_path, train), replace(UNIGRAM, training_lines=22))
    every = prepare(corpus(tmp_path, train), replace(UNIGRAM, training_lines=1000))
    known = [set("".join(p.source.vocabulary.to_json())) for p in (few, every)]
    assert known[0] < known[1]
    assert len(known[1] & set("qvwz")) == 4
    assert "x" not in "".join(every.target.vocabulary.to_json())  # its partner is empty


def test_text_that_changes_after_its_scan_is_refused(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    texts = scan.scan_files(data)
    path = Path(data.train_source)
    for changed in (path.read_bytes()[:-9], path.read_bytes().replace(b"a", b"e")):
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"train\.en: changed while they were read; start"):
            Preparation(data, BPE, None, texts).write(tmp_path)


def test_a_giant_line_is_dropped_from_either_text(tmp_path: Path) -> None:
    """Such a line is no sentence, and segmenting and attending to it would stop everything."""
    line = "a" * 2**20
    data = corpus(tmp_path, max_line_bytes=65536)
    for split in ("train", "dev"):
        for side in ("source", "target"):
            with Path(getattr(data, f"{split}_{side}")).open("a") as file:
                file.write(f"{line}\n" if side == "source" else "dog\n")
    prepared = prepare(data, BPE)
    report = prepared.report
    for split, lines in (("train", 40), ("dev", 3)):
        assert report[split]["dropped"]["too many bytes"]["pairs"] == 1
        assert report[split]["kept"]["pairs"] == lines
    assert "dropped: too many bytes" in describe(report).split("\ndev")[1]


def test_pairs_of_unlike_lengths_are_dropped(tmp_path: Path) -> None:
    train = [("a b c", "a b c d e f"), ("a", "a b c d"), ("a b c d e f g", "a b"), ("a b", "c d")]
    whole = corpus(tmp_path, train=train * 3)
    bpe_ = replace(BPE, merges=0, min_frequency=1)
    found = prepare(replace(whole, max_ratio=2.0), bpe_)
    assert sorted(set(found.train.lines.tolist())) == [1, 4, 5, 8, 9, 12]
    assert found.report["train"]["dropped"]["unlike lengths"]["pairs"] == 6
    assert not found.report["dev"]["dropped"]["unlike lengths"]["pairs"]
    everything = prepare(whole, bpe_)
    assert len(everything.train) == 12 and everything.path != found.path
