"""How much memory there is and was used, and what happens to memory that tensors freed."""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.machine.cpus import cgroups

if TYPE_CHECKING:  # its import takes two seconds, and most of this does without
    import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # as glibc's malloc.h numbers them


def keep_memory() -> None:
    """Keep freed memory in this process, for the next tensors.

    glibc returns each larger block to the system at once and requests a new one, every page of
    which costs a fault and is zeroed: a tenth of a training step on CPUs. Does nothing where malloc
    has no such setting (macOS, musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_memory() -> None:
    """Return to the system the unused memory between blocks in use.

    Kept memory is fragmented: what libraries never free, such as code that oneDNN compiles for each
    new shape of a product, lies between tensors, and larger tensors then need new memory.
    Does nothing where malloc is not glibc's.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_memory(device: "torch.device") -> int:
    """Return the most bytes that tensors used on a GPU since the last call, or since the start.

    For the CPU it is the largest resident size of this process, libraries included; the system
    records no other.
    """
    if device.type == "cuda":
        import torch

        most = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return most
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where ru_maxrss begins with what the parent process had
        for line in status.read_text(encoding="utf-8").split("\n"):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return high if sys.platform == "darwin" else high * 1024  # elsewhere it counts in KiB


def memory_of(device: "torch.device | None" = None) -> int:
    """Return the bytes of a GPU's memory; for the CPU (None), the most that this process may use.

    That is the machine's memory, the limit of a container or a job (cgroup v2 or v1), or what
    `ulimit -v` leaves.
    """
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.get_device_properties(device).total_memory
    bounds = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (soft := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        bounds.append(soft)
    for directory in cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # not there, or "max"
                bounds.append(int((directory / name).read_text(encoding="utf-8")))
    return min(bounds)
