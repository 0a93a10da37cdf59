"""The machine on which the figures are measured."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.machine.cpus import cores

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8")
LIBRARIES = ("numpy", "sacremoses", "subword-nmt", "sentencepiece", "safetensors")


def describe(device: str, threads: int) -> dict[str, Any]:
    """The machine, its load, and the versions that matter."""
    info = _processor()
    flags = info.get("flags", "").split()
    versions = {"nmt": nmt.__version__, "python": sys.version.split()[0]}
    versions |= {"torch": torch.__version__}
    versions |= {name: importlib.metadata.version(name) for name in LIBRARIES}
    machine: dict[str, Any] = {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "memory_bytes": memory(),
        "load": list(os.getloadavg()),
        "threads": threads,
        "device": device,
        "system": platform.platform(),
        "versions": versions,
    }
    if device.startswith("cuda"):
        machine["gpu"] = torch.cuda.get_device_name(device)
        versions["cuda"] = str(torch.version.cuda)
    return machine


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def text(machine: dict[str, Any]) -> str:
    """The machine in one line."""
    cpu = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads"
    flags = " ".join(f for f in machine["flags"] if f != "avx2") or "no AVX-512"
    torch_, load = f"torch {machine['versions']['torch']}", f"load {machine['load'][0]:.1f}"
    return f"{machine.get('gpu') or cpu}; {flags}; {torch_}; {load} before the bench"


def _processor() -> dict[str, str]:
    """The first processor's fields in /proc/cpuinfo; empty where there is no such file."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8").partition("\n\n")[0] if file.exists() else ""
    lines = (line.partition(":") for line in text.split("\n"))
    return {name.strip(): value.strip() for name, _, value in lines}
