"""Ranks that a test starts itself, without the three seconds of torchrun."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAINING = """
import json, os, sys
from pathlib import Path
os.fsync = lambda descriptor: None
import torch
from nmt.training import corpus
from nmt.training.distributed import connect_ranks
from nmt.training.directory import open_run
from tests.training import tiny

compiler = torch.compile
torch.compile = lambda function, **more: compiler(function, backend="aot_eager", **more)
root, changes = Path(sys.argv[1]), json.loads(sys.argv[2])
with connect_ranks() as world:
    settings = tiny.settings(**changes)
    own_text = Path(settings.data.train_source).exists() or settings.data.corpora
    data = corpus.prepare(settings) if own_text else tiny.prepared(root / f"data-{os.getpid()}")
    with open_run(root / "run", settings, world) as opened:
        tiny.fit(data, opened)
    if compiled := sys.modules.get("torch._dynamo.utils"):
        (root / f"graphs{world.rank}").write_text(str(compiled.counters["frames"]["total"]))
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def surroundings(count: int) -> dict[str, str]:
    """What torchrun would put into the environment of every rank."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def train(count: int, root: Path, changes: str) -> None:
    """Train `root`/run by so many ranks, which must end well; `changes` of settings, in JSON."""
    common = surroundings(count)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(root), changes],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=200)
        assert rank.returncode == 0, err.decode()
