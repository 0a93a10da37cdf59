"""On what the figures were measured."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

import nmt

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8")
LIBRARIES = ("numpy", "sacremoses", "subword-nmt", "sentencepiece", "safetensors")


def describe(device: str, threads: int) -> dict[str, Any]:
    """The machine, its load, and the versions that matter."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": cores,
        "flags": _flags(),
        "memory_bytes": memory(),
        "load": list(os.getloadavg()),
        "threads": threads,
        "device": device,
        "system": platform.platform(),
        "versions": {
            "nmt": nmt.__version__,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            **{name: importlib.metadata.version(name) for name in LIBRARIES},
        },
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name(device)
        found["versions"]["cuda"] = torch.version.cuda
    return found


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def text(found: dict[str, Any]) -> str:
    """One line of it."""
    what = found.get("gpu") or f"{found['cpu']}, {found['cores']} cores, {found['threads']} threads"
    flags = " ".join(f for f in found["flags"] if f != "avx2") or "no AVX-512"
    load = found["load"][0]
    return f"{what}; {flags}; torch {found['versions']['torch']}; load {load:.1f} before the bench"


def _cpu() -> str:
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _flags() -> list[str]:
    for line in _cpuinfo():
        if line.startswith("flags"):
            there = set(line.partition(":")[2].split())
            return [flag for flag in FLAGS if flag in there]
    return []


def _cpuinfo() -> list[str]:
    where = Path("/proc/cpuinfo")
    return where.read_text(encoding="utf-8").split("\n") if where.exists() else []
