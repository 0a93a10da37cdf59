"""The plain training loop that a user of PyTorch writes, on batches read from the bench's file."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from protocol import Line
from torch import Tensor, nn

PAD = 0
LR, CLIP = 3e-4, 1.0


def batches(path: str, device: str) -> list[tuple[Tensor, Tensor]]:
    """Source [batch, source] and target [batch, target] ids; a target is bos ... eos."""
    with np.load(path) as file:
        return [
            (
                torch.from_numpy(file[f"source_{i}"]).long().to(device),
                torch.from_numpy(file[f"target_{i}"]).long().to(device),
            )
            for i in range(len(file.files) // 2)
        ]


def train(
    job: dict[str, Any],
    model: nn.Module,
    logits: Callable[[Tensor, Tensor], Tensor],
    **facts: Any,
) -> None:
    """Answer rounds of `job["updates"]` updates; `logits(source, prefixes) -> [..., vocab]`."""
    device = job["device"]
    model.to(device).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, fused=True)
    lower = job["precision"] == "bfloat16"
    known = batches(job["batches"], device)
    smoothing = job["label_smoothing"]
    line, place = Line(), 0
    line.ready(
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        parameters=sum(p.numel() for p in parameters),
        **facts,
    )
    while line.asked():
        began, tokens = time.perf_counter(), 0
        for _ in range(job["updates"]):
            source, target = known[place % len(known)]
            expected = target[:, 1:]
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=lower):
                found = logits(source, target[:, :-1])
                loss = F.cross_entropy(
                    found.flatten(0, 1).float(),
                    expected.flatten(),
                    ignore_index=PAD,
                    label_smoothing=smoothing,
                )
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tokens += int(expected.ne(PAD).sum())
            place += 1
        last = float(loss.detach())  # waits for a GPU
        seconds = time.perf_counter() - began
        more = {"gpu_bytes": torch.cuda.max_memory_allocated()} if device != "cpu" else {}
        line.answer(tokens, seconds, loss=last, **more)
