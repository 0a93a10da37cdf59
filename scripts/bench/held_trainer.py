"""nmt's own training loop, held back between rounds."""

import time
from pathlib import Path
from typing import Any

import torch

from nmt.config.settings import thaw
from nmt.training.directory import open_run
from nmt.training.trainer import Trainer
from scripts.bench import corpus
from scripts.bench.peers.protocol import Channel


class HeldTrainer(Trainer):
    """A trainer that waits before each round of updates until it is asked for them."""

    channel: Channel
    updates: int  # of a round
    tokens: list[int]  # how many each batch of the first epoch asks to predict

    def update(self, signal: int = 0) -> int:
        """Take a step; the first of a round starts the clock, the last one answers."""
        if self.step % self.updates == 0:
            if not self.channel.next_round():
                raise SystemExit(0)
            self.began = time.perf_counter()
        signal = super().update(signal)
        if self.step % self.updates == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            seconds = time.perf_counter() - self.began
            done = range(self.step - self.updates, self.step)
            tokens = sum(self.tokens[i % len(self.tokens)] for i in done)
            self.channel.answer(tokens, seconds)
        return signal

    def checkpoint(self) -> None:
        """Skip what comes at the end of an epoch: only updates are measured."""


def train(job: dict[str, Any]) -> None:
    channel, settings = Channel(), thaw(job["settings"])
    prepared = corpus.prepared(Path(job["store"]), job["vocab"])
    with open_run(Path(job["run"]), settings) as run:
        trainer = HeldTrainer(prepared, run)
        trainer.channel, trainer.updates, trainer.tokens = channel, job["updates"], job["tokens"]
        channel.ready(parameters=sum(p.numel() for p in trainer.parameters))
        trainer.start()
        trainer.fit()
