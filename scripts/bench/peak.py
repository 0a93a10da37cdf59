"""The matmul peak of this machine, now, with so many threads: what every figure is a share of."""

import time
from typing import Any

import torch

from scripts.bench.peers.protocol import job, serve

SQUARES = (512, 1024, 2048)  # tried, since the best one differs between machines
ON_A_GPU = (4096, 8192)
LEAST = 0.08  # seconds for each size


def measure(precision: str, device: str, squares: tuple[int, ...]) -> dict[str, Any]:
    """Multiply square matrices; the best size's operations and seconds."""
    best: dict[str, Any] = {"units": 0.0, "seconds": 1.0}
    for n in squares:
        a = torch.rand(n, n, device=device).to(getattr(torch, precision))
        b = torch.rand(n, n, device=device).to(a.dtype)
        product = torch.empty_like(a)
        torch.mm(a, b, out=product)
        _wait(device)
        count, began, used = 0, time.perf_counter(), time.process_time()
        while count < 2 or time.perf_counter() - began < LEAST:
            torch.mm(a, b, out=product)
            count += 1
            if device == "cpu" or count % 8 == 0:
                _wait(device)
        _wait(device)
        seconds = time.perf_counter() - began
        units = 2.0 * n**3 * count
        if units / seconds > best["units"] / best["seconds"]:
            cpu = time.process_time() - used
            best = {"units": units, "seconds": seconds, "cpu_seconds": cpu, "square": n}
    return best


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    """Answer rounds."""
    asked = job()
    torch.set_num_threads(asked["threads"])
    device = asked["device"]
    squares: tuple[int, ...] = SQUARES if device == "cpu" else ON_A_GPU
    if asked["quick"]:
        squares = squares[:1]
    serve(lambda: measure(asked["precision"], device, squares), torch=torch.__version__)


if __name__ == "__main__":
    main()
