"""How much memory computing takes, and how a process treats what tensors gave back."""

import ctypes
import resource
import sys
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # as glibc's malloc.h numbers them


def keep_memory() -> None:
    """Let this process keep the memory that tensors gave back, for those that come next.

    glibc returns each larger block to the system at once and asks for it anew, whose every page
    then costs a fault and a wipe: a tenth of a training step on CPUs. Does nothing where malloc
    cannot be told (macOS, musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_memory() -> None:
    """Give the system back the memory that lies unused between what this process holds.

    Kept memory comes apart: what libraries hold for good, as code that oneDNN compiles for each
    new shape of a product, comes to lie between tensors, and larger tensors then need new memory.
    Does nothing where malloc is not glibc's.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_memory(device: torch.device) -> int:
    """Return bytes: the most that tensors took on a GPU since the last call, or ever at the first.

    For the CPU it is the most that this process ever had resident, libraries included: the system
    keeps only that mark.
    """
    if device.type == "cuda":
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
