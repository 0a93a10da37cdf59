"""10,000 random lines are prepared, translated and evaluated: none is lost, added or moved."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.cli.train import main as train
from nmt.cli.translate import main as translate
from nmt.corpus.prepare import load
from nmt.text.tokenizer import normalise

COUNT = 10_000
PARTS = [
    *("hund", "frau", "liest", "A.", "It's", "1.", "...", "http://x.org/?a=b", ">>de<<", "{0}"),
    *("</s>", "<unk>", "@@", "\u2581", "@-@", "&amp;", "<b>", "\\", '"', "%s", "中文", "ﷺ", "ß"),
    *("\r", "\t", "\x0b", "\x0c", "\x1c", "\x1e", "\x7f", "\x85", "\u2028", "\u2029", "\x1f\x8b"),
    *("\xa0", "\u3000", "\u200b", "\u200d", "\ufeff", "\u202e", "\ufffd", "e\u0301", "\u0301"),
    *("😀", "👩\u200d👧", "\U0010ffff", "\ue000", " ", "  ", "#", "|||", "'", "\N{HANGUL FILLER}"),
]


def draw_lines(seed: int) -> list[str]:
    """Lines of random parts, of random characters, of repetitions, and empty ones."""
    draw, lines = random.Random(seed), list[str]()
    while len(lines) < COUNT:
        parts = draw.choices(PARTS, k=draw.choice([0, 1, 2, 3, 3, 5, 8, 13]))
        line = draw.choice(["", " "]).join(parts)
        if draw.random() < 0.05:
            line += "".join(chr(draw.choice([draw.randrange(11, 0x250), 0x4E8C])) for _ in "abc")
        lines.append(line)
    return lines


def write(path: Path, lines: list[str]) -> Path:
    """Write lines, some of which end in CR LF."""
    ends = random.Random(9)
    text = "".join(f"{line}{ends.choice([chr(10), chr(13) + chr(10)])}" for line in lines)
    path.write_bytes(text.encode())
    return path


@pytest.mark.slow
def test_no_line_is_lost_added_or_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {code: draw_lines(seed) for seed, code in enumerate(("de", "en"))}
    for code, lines in texts.items():
        write(tmp_path / f"train.{code}", lines)
        write(tmp_path / f"dev.{code}", ["hund frau"] * 3)
    words = "data=files data.root=. data.max_length=1000 segmenter.merges=40 data.workers=2"
    words += " model=tiny model.tie=none trainer.max_steps=1 trainer.device=cpu name=run"
    words += " segmenter.tokenizer=none segmenter.shared_vocabulary=false encoding=relative"
    assert train(words.split()) == 0

    prepared = load(next(Path("data/prepared").glob("*/facts.json")).parent)
    clean = {code: [normalise(line) for line in lines] for code, lines in texts.items()}
    kept = [n for n, pair in enumerate(zip(*clean.values(), strict=True), 1) if all(pair)]
    assert prepared.train.lines.tolist() == kept and 0.6 * COUNT < len(kept) < COUNT
    for i, number in enumerate(kept):
        for side, code, ids in zip(
            (prepared.source, prepared.target), texts, prepared.train.pair(i), strict=True
        ):
            assert side.text(ids.tolist()) == clean[code][number - 1]

    limits: dict[str, Any] = {"max_length_ratio": 0, "max_length_offset": 4, "beam_size": 1}
    options = [f"decode.{key}={value}" for key, value in limits.items()]
    assert translate(["runs/run", "train.de", "-o", "out", "--threads", "1", *options]) == 0
    outputs = Path("out").read_text(encoding="utf-8").split("\n")
    assert len(outputs) == COUNT + 1 and outputs.pop() == ""
    assert not any(out for line, out in zip(clean["de"], outputs, strict=True) if not line)
    usual, _ = Counter(outputs).most_common(1)[0]
    alone = [n for n, line in enumerate(outputs) if line != usual][::40]
    assert len(alone) > 20
    model = nmt.load("runs/run")
    for n in alone:
        found = nmt.translate(model, [texts["de"][n]], **limits)
        assert found == [outputs[n]], texts["de"][n]

    write(tmp_path / "hypotheses", texts["en"])
    report = nmt.evaluate({"same": "hypotheses"}, "train.en", "train.de")
    same = report.figure("chrF2", "same")
    assert same is not None and (same.mean, same.pairs) == (100, COUNT)
