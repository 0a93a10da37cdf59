"""Where to compute, and the only place that changes settings of torch for it."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from nmt.system import resources

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # not overridden where they are set


def pick(name: str | torch.device) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:1, or auto (a GPU if there is one)."""
    return torch.device(str(resources.parse_device(name, torch.cuda.device_count, "torch")))


def set_up(device: torch.device, *, tf32: bool = False, threads: int | None = None) -> None:
    """Set how torch computes on a device, for the whole process.

    tf32: on a GPU, products of float32 round their factors to 10 bits of fraction. Otherwise none
    does, not even those of convolutions and recurrent layers, which torch rounds by default.
    threads: on the CPU; None: torch's choice, but no more than the process may use.
    """
    torch.set_num_threads(usable_threads() if threads is None else threads)
    if device.type != "cuda":
        return
    backends: Any = torch.backends
    # it plans anew for every shape, up to a second each, and text has hundreds of shapes
    backends.cuda.enable_cudnn_sdp(False)
    # torch has an older and a newer name for this, and refuses to read where the two disagree
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = tf32
    for products in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        products.fp32_precision = "tf32" if tf32 else "ieee"
    # read at the first product, for `deterministic_algorithms`
    os.environ.setdefault(WORKSPACE, ":4096:8")
    if sys.platform == "linux" and not any(map(os.environ.get, ALLOCATOR)):
        # batches differ in shape, and freed memory of one does not fit the next
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    if device.index is not None:
        torch.cuda.set_device(device)  # whose memory pinning takes, and whose streams torch means


def usable_threads() -> int:
    """Threads that torch has, but no more than the process may use: torch ignores quotas."""
    return min(torch.get_num_threads(), resources.threads())


@contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """If enabled, operations in this context give the same bits in every run on a device.

    Those that cannot raise RuntimeError; only GPUs have such operations.
    """
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    if enabled:
        torch.use_deterministic_algorithms(True)
        memory.fill_uninitialized_memory = False  # it is to show bugs, and costs
    try:
        yield
    finally:
        if enabled:
            torch.use_deterministic_algorithms(before[0])
            memory.fill_uninitialized_memory = before[1]


def nondeterministic(error: RuntimeError) -> str | None:
    """Return the operation without a deterministic form that an error is about; None: another."""
    match = re.match(r"(\S+) does not have a deterministic implementation", str(error))
    return None if match is None else match[1]


def has_low_precision(device: torch.device) -> bool:
    """Whether a GPU has units for bfloat16 and TF32: those since Ampere (2020) have both."""
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def device_name(device: torch.device) -> str:
    """The name of a GPU as its maker gives it; of other devices their kind, as "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a CPU tensor to the device without waiting for what the device computes."""
    if device.type != "cpu":
        tensor = tensor.pin_memory()  # from pageable memory the copy would wait
    return tensor.to(device, non_blocking=True)


def to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors [n, ...] of one device to the CPU at once, so as to wait for a GPU once."""
    if all(t.device.type == "cpu" for t in tensors):
        return list(tensors)
    as_bytes = [t.contiguous().flatten().view(torch.uint8) for t in tensors]
    parts = torch.cat(as_bytes).cpu().split([len(part) for part in as_bytes])
    # a clone begins where numbers of any size may
    return [p.clone().view(t.dtype).view(t.shape) for p, t in zip(parts, tensors, strict=True)]


def numbers_later(tensor: torch.Tensor) -> Callable[[], list[float]]:
    """Begin to copy a tensor [n] to the host; returns a function that waits for the numbers."""
    if tensor.device.type == "cpu":
        return tensor.tolist
    copy = torch.empty_like(tensor, device="cpu").pin_memory()
    copy.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(tensor.device))

    def read() -> list[float]:
        copied.synchronize()
        numbers: list[float] = copy.tolist()
        return numbers

    return read
