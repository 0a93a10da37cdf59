"""The plain training loop that a user of PyTorch writes, on batches read from the bench's file."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from protocol import serve
from torch import Tensor, nn

PAD = 0
LR, CLIP = 3e-4, 1.0


def batches(path: str, device: str) -> list[tuple[Tensor, Tensor]]:
    """Source [batch, source] and target [batch, target] ids; a target is bos ... eos."""
    with np.load(path) as file:

        def ids(name: str) -> Tensor:
            return torch.from_numpy(file[name]).long().to(device)

        return [(ids(f"source_{i}"), ids(f"target_{i}")) for i in range(len(file.files) // 2)]


def train(
    job: dict[str, Any], model: nn.Module, logits: Callable[[Tensor, Tensor], Tensor], **facts: Any
) -> None:
    """Answer rounds of `job["updates"]` updates; `logits(source, prefixes) -> [..., vocab]`."""
    device = torch.device(job["device"])
    model.to(device).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, fused=True)
    lower = job["precision"] == "bfloat16"
    endless = cycle(batches(job["batches"], job["device"]))

    def play() -> dict[str, Any]:
        tokens = 0
        for _ in range(job["updates"]):
            source, target = next(endless)
            expected = target[:, 1:]
            with torch.autocast(device.type, torch.bfloat16, enabled=lower):
                loss = F.cross_entropy(
                    logits(source, target[:, :-1]).flatten(0, 1).float(),
                    expected.flatten(),
                    ignore_index=PAD,
                    label_smoothing=job["label_smoothing"],
                )
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tokens += int(expected.ne(PAD).sum())
        return {"units": tokens, "loss": float(loss.detach())}  # waits for a GPU

    serve(play, parameters=sum(p.numel() for p in parameters), **facts)
