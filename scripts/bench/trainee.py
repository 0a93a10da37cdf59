"""The worker that trains: the product's own loop, held back between rounds."""

import time
from pathlib import Path
from typing import Any

import torch

from nmt import config
from nmt.data.prepare import Prepared
from nmt.training.run import Run, open_run
from nmt.training.trainer import Trainer
from scripts.bench import corpus
from scripts.bench.peers.protocol import Line, job


class Held(Trainer):
    """A trainer that waits before every so many updates until it is asked for them."""

    def __init__(
        self,
        settings: config.Settings,
        prepared: Prepared,
        run: Run,
        line: Line,
        updates: int,
        tokens: list[int],
    ) -> None:
        """`tokens`: how many each batch of the first epoch asks to predict."""
        super().__init__(settings, prepared, run)
        self.line, self.updates, self.tokens = line, updates, tokens

    def update(self) -> None:
        """Take a step; the first of a round starts the clock, the last one answers."""
        if self.step % self.updates == 0:
            if not self.line.asked():
                raise SystemExit(0)
            self.begin()
        super().update()
        if self.step % self.updates == 0:
            done = range(self.step - self.updates, self.step)
            self.line.answer(sum(self.tokens[i % len(self.tokens)] for i in done), **self.end())

    def begin(self) -> None:
        """Start the clock."""
        self.began = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """Stop the clock; seconds, and the memory of a GPU."""
        if self.device.type != "cuda":
            return {"seconds": time.perf_counter() - self.began}
        torch.cuda.synchronize()
        seconds = time.perf_counter() - self.began
        return {"seconds": seconds, "gpu_bytes": torch.cuda.max_memory_allocated()}

    def checkpoint(self) -> None:
        """Skip what comes at the end of an epoch: only updates are measured."""


def main(kind: type[Held] = Held) -> None:
    """Answer rounds."""
    line, asked = Line(), job()
    settings = config.thaw(asked["settings"])
    prepared = corpus.prepared(Path(asked["store"]), asked["vocab"])
    with open_run(Path(asked["run"]), settings) as run:
        trainer = kind(settings, prepared, run, line, asked["updates"], asked["tokens"])
        line.ready(
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            parameters=sum(p.numel() for p in trainer.parameters),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
