"""The machine on which the figures are measured."""

import importlib.metadata
import os
import platform
from typing import Any

import torch

import nmt
from nmt.system.machine import CPUINFO, processor
from nmt.system.resources import cores, memory_of

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8")
LIBRARIES = ("numpy", "sacremoses", "subword-nmt", "sentencepiece", "safetensors")


def describe(device: str, threads: int) -> dict[str, Any]:
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    flags = text.partition("flags")[2].partition("\n")[0].split()
    on_gpu = device.startswith("cuda")
    return {
        "cpu": processor(),
        "cores": cores(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "memory_bytes": memory_of(),
        "load": list(os.getloadavg()),
        "threads": threads,
        "device": device,
        **({"gpu": torch.cuda.get_device_name(device)} if on_gpu else {}),
        "system": platform.platform(),
        "versions": {
            "nmt": nmt.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            **({"cuda": str(torch.version.cuda)} if on_gpu else {}),
            **{name: importlib.metadata.version(name) for name in LIBRARIES},
        },
    }


def text(machine: dict[str, Any]) -> str:
    cpu = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads"
    flags = " ".join(f for f in machine["flags"] if f != "avx2") or "no AVX-512"
    torch_, load = f"torch {machine['versions']['torch']}", f"load {machine['load'][0]:.1f}"
    return f"{machine.get('gpu') or cpu}; {flags}; {torch_}; {load} before the bench"
