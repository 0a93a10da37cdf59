"""The worker that measures the matmul peak of this machine, of which other figures are a share.

Its products are made as nmt makes them, by the faster of torch's libraries."""

import time
from typing import Any

import torch

from nmt.system.products import product
from scripts.bench.peers.protocol import read_job, serve

SQUARES = (512, 1024, 2048)  # tried, since the best one differs between machines
ON_A_GPU = (4096, 8192)
LEAST = 0.08  # seconds for each size


def measure(precision: str, device: str, squares: tuple[int, ...]) -> dict[str, Any]:
    """Multiply square matrices; the best size's operations and seconds."""
    return max(
        (_square(n, getattr(torch, precision), device) for n in squares),
        key=lambda answer: answer["units"] / answer["seconds"],
    )


def _square(n: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    a, b = (torch.rand(n, n, device=device).to(dtype) for _ in range(2))

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize(device)

    product(a, b)
    wait()
    count, began, used = 0, time.perf_counter(), time.process_time()
    while count < 2 or time.perf_counter() - began < LEAST:
        product(a, b)
        count += 1
        if count % 8 == 0:
            wait()
    wait()
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {"units": 2.0 * n**3 * count, "seconds": seconds, "cpu_seconds": cpu, "square": n}


def main() -> None:
    """Answer rounds."""
    job = read_job()
    squares: tuple[int, ...] = SQUARES if job["device"] == "cpu" else ON_A_GPU
    if job["quick"]:
        squares = squares[:1]
    serve(lambda: measure(job["precision"], job["device"], squares))


if __name__ == "__main__":
    main()
