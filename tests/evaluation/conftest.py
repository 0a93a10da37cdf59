"""Tiny runs that all tests of evaluation share."""

from pathlib import Path

import pytest

from nmt.cli import train
from nmt.evaluation.testsets import ParallelFiles

TINY = [
    *("experiment=compare", "model.dim=16", "model.feedforward_dim=16", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "trainer.batch_tokens=100"),
    *("data.train_pairs=60", "data.train_longest=9", "data.dev_pairs=10", "data.test_pairs=20"),
    *("data.test_longest=40", "trainer.max_steps=4", "trainer.log_every=2"),
    *("decode.max_length_ratio=0.5", "decode.max_length_offset=2"),
]
RUNS = {
    "absolute-seed1": ["encoding=absolute"],
    "absolute-seed2": ["encoding=absolute", "seed=2"],
    "relative_seed1": ["encoding=relative", "tau=2"],
}


class TinyRuns:
    """Three tiny runs and their test set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        words = [*TINY, f"data.cache={root / 'cache'}", f"runs={root}"]
        for name, changes in RUNS.items():
            assert train.main([*words, *changes, f"name={name}"]) == 0
        (text,) = (root / "cache" / "toy").glob("de-en*[0-9]")
        self.source, self.reference = text / "test.de", text / "test.en"

    def paths(self, *names: str) -> list[str]:
        return [str(self.root / name) for name in names]

    def test(self, name: str = "toy") -> list[str]:
        return ["--test", f"{name}={self.source},{self.reference}"]

    def files(self, name: str = "t") -> ParallelFiles:
        return ParallelFiles(name, "", [self.source], [self.reference])


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> TinyRuns:
    return TinyRuns(tmp_path_factory.mktemp("runs"))
