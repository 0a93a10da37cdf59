"""Training passes as torch's compiler makes them (trainer.compile)."""

import os
import shutil
from collections.abc import Callable
from typing import TypeVar

import torch

from nmt.config.settings import Training
from nmt.errors import UserError

Result = TypeVar("Result")


def wanted(options: Training, device: torch.device) -> bool:
    """Whether passes are compiled on the device; raises UserError where true cannot be done.

    auto: on a GPU, where it can be done. On CPUs a compiled step was measured to take longer.
    """
    if options.compile == "auto":
        return device.type == "cuda" and _obstacle(options, device) is None
    if options.compile and (why := _obstacle(options, device)) is not None:
        raise UserError(f"trainer.compile=true: {why}")
    return bool(options.compile)


def compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return the function as torch compiles it at its first call, once for all shapes.

    With several ranks torch would split its graph wherever a bucket of gradients is complete, to
    send them earlier. With the embeddings' scale, which it keeps symbolic, that fails in torch
    2.13, and in 2.11 each shape adds graphs. So it does not split graphs in this process.
    """
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = False
    return torch.compile(function, dynamic=True)


def _obstacle(options: Training, device: torch.device) -> str | None:
    """Why passes cannot be compiled, and what to do; None: they can."""
    if options.gradient_checkpointing:
        return (
            "not with trainer.gradient_checkpointing=true, as layers that are computed twice "
            "break the compiler's graphs; choose one of the two"
        )
    if device.type == "cpu" and not has_cpp_compiler():
        return (
            "torch finds no C++ compiler that works (g++, or the one that the variable CXX names); "
            "install one, or choose trainer.compile=false"
        )
    if device.type == "cuda" and not has_triton():
        return (
            "torch compiles for GPUs by Triton, which is not installed, does not know this one, or "
            "finds no C compiler (gcc, clang, or that of CC); choose trainer.compile=false"
        )
    return None


def has_cpp_compiler() -> bool:
    """Whether torch finds a C++ compiler that works."""
    from torch._inductor.cpp_builder import get_cpp_compiler  # seconds, which others need not

    try:
        get_cpp_compiler()
    except Exception:  # of several kinds, from missing to broken
        return False
    return True


def has_triton() -> bool:
    """Whether torch finds a Triton for the GPU, and that the C compiler that it calls."""
    from torch.utils import _triton

    compilers = (os.environ.get("CC"), shutil.which("gcc"), shutil.which("clang"))
    return bool(_triton.has_triton()) and any(compilers)
