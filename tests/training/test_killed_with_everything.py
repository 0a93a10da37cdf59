"""Two ranks with all that is drawn at random, killed three times, end as ranks that never were."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.training.ranks import surroundings

WORDS = [f"{a}{b}{c}" for a in ("ba", "de", "lo", "mi") for b in ("na", "ro") for c in "tks"]
SETTINGS = """
data=files data.source_language=de data.target_language=en segmenter.merges=60 model=tiny
model.dim=16 model.feedforward_dim=32 model.encoder_layers=1 model.decoder_layers=1
data.join=3 data.join_share=0.5 data.join_length=30 data.bpe_dropout=0.2 data.workers=4
trainer.ema=0.9 trainer.dev_metric=bleu trainer.dev_lines=8 trainer.batch_tokens=150
trainer.accumulate=2 trainer.max_epochs=3 trainer.log_every=1 trainer.checkpoints_per_epoch=3
trainer.device=cpu trainer.tensorboard=false encoding=relative
+data.corpora.a.weight=0.6 +data.corpora.b.weight=1.7
"""


def write_text(root: Path) -> list[str]:
    """Write two corpora and a development text; returns the overrides that name them."""
    draw = random.Random(4)
    for name, size in (("a", 400), ("b", 300), ("dev", 12)):
        (root / name).mkdir()
        lines = [draw.choices(WORDS, k=draw.randint(1, 9)) for _ in range(size)]
        split = "dev" if name == "dev" else "train"
        for code, step in (("de", 1), ("en", -1)):
            text = "".join(" ".join(line[::step]) + "\n" for line in lines)
            (root / name / f"{split}.{code}").write_text(text, encoding="utf-8")
    dev = [f"data.dev_{s}={root}/dev/dev.{c}" for s, c in (("source", "de"), ("target", "en"))]
    tags = [f"+data.corpora.{name}.tag='>>{name}<<'" for name in "ab"]
    return [f"data.root={root}", f"data.cache={root}/prepared", *dev, *tags]


def start(root: Path, name: str, text: list[str]) -> list["subprocess.Popen[bytes]"]:
    common = surroundings(2)
    words = [*SETTINGS.split(), *text, f"runs={root}/runs", f"name={name}"]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "nmt.cli.train", *words],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            cwd=root,
        )
        for rank in range(2)
    ]


def wait(ranks: list["subprocess.Popen[bytes]"]) -> None:
    for rank in ranks:
        _, err = rank.communicate(timeout=200)
        assert rank.returncode == 0, err.decode()


def kill_after(step: int, run: Path, ranks: list["subprocess.Popen[bytes]"]) -> None:
    end = time.monotonic() + 200
    while len(read_metrics(run, "train")) < step:
        assert time.monotonic() < end and all(rank.poll() is None for rank in ranks)
        time.sleep(0.005)
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.communicate()


def read_metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    """Whole lines of metrics.jsonl without times and memory; the last of each step."""
    file, timed = run / "metrics.jsonl", ("seconds", "tokens_per_second", "memory_bytes")
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    read = {line["step"]: line for line in map(json.loads, lines) if line["kind"] == kind}
    return [{k: v for k, v in line.items() if k not in timed} for line in read.values()]


@pytest.mark.slow
def test_killed_ranks_end_as_those_that_never_were(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    wait(start(tmp_path, "whole", text))
    whole, killed = (tmp_path / "runs" / name for name in ("whole", "killed"))
    steps = len(read_metrics(whole, "train"))
    assert steps > 20
    for step in (steps // 4, steps // 2, steps - 2):
        kill_after(step, killed, start(tmp_path, "killed", text))
    wait(start(tmp_path, "killed", text))
    for kind in ("train", "dev"):
        assert read_metrics(killed, kind) == read_metrics(whole, kind)
    newest = [max((run / "checkpoints").glob("step-*")) for run in (whole, killed)]
    tensors = [{p.name: p.read_bytes() for p in path.glob("*.safetensors")} for path in newest]
    assert len(tensors[0]) >= 3 and tensors[0] == tensors[1]
    assert {line["epoch"] for line in read_metrics(whole, "train")} == {1, 2, 3}
