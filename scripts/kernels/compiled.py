"""Kernels compiled for GPUs that are not there: what they need of a processor."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nmt.kernels import choice, crossentropy
from scripts.kernels import where

POINTERS = {"lse": "*fp32", "delta": "*fp32", "loss": "*fp32", "nll": "*fp32", "bias": "*fp32",
            "allowed": "*u8", "seed": "*i64", "target": "*i64"}  # fmt: skip
NUMBERS = ("scale", "grown", "smoothing")  # float; the others are integers
INTEGERS = ("heads", "n", "m", "mask_batch", "mask_query", "dropped", "vocab", "wide")
MULTIPLES = ("wide",)  # of 16, as pointers are
TAU = 16
LENGTHS = (16, 32, 64)  # one for each size of a block


class Needs(NamedTuple):
    """What a program of a kernel takes."""

    kernel: str
    number_format: str  # bf16, fp32
    width: int  # of a head; of a block of the vocabulary
    block: int  # queries, and keys
    causal: bool
    registers: int  # of a thread, of 255
    spilled: int  # bytes of a thread that found no register
    shared: int  # bytes of a program
    load: int  # bytes of its widest load from memory into registers; 16 is the most


def needs(capability: int, quick: bool) -> Iterator[Needs]:
    """Compile every kernel for GPUs of a compute capability, as 80 (A100) and 90 (H100).

    In bfloat16 and with dropout; without `quick` in TF32 as well.
    """
    where.triton_or_refuse()
    from nmt.kernels import crossentropy_triton, relative_triton

    attention = (relative_triton.forward, relative_triton.by_query, relative_triton.by_key)
    widths = (64,) if quick else choice.WIDTHS
    for number_format in ("bf16",) if quick else ("bf16", "fp32"):
        for width in widths:
            blocks = dict.fromkeys(choice.block(n, width) for n in LENGTHS[1 if quick else 0 :])
            for block in blocks:
                for causal in (False, True):
                    for kernel in attention:
                        constants = _attention(width, block, causal)
                        warps = choice.warps(block, block)
                        use = _compiled(kernel, number_format, constants, warps, capability)
                        name = kernel.__name__
                        yield Needs(name, number_format, width, block, causal, *use)
        constants = {"BLOCK": crossentropy.BLOCK}
        loss = crossentropy_triton.smoothed
        use = _compiled(loss, number_format, constants, crossentropy.WARPS, capability)
        yield Needs(loss.__name__, number_format, crossentropy.BLOCK, 1, False, *use)


def _attention(width: int, block: int, causal: bool) -> dict[str, Any]:
    return {
        "KEYS": True, "VALUES": True, "MASK": 0 if causal else 1, "CAUSAL": causal,
        "DROPOUT": True, "TAU": TAU, "WIDTH": 40, "D": width, "QUERIES": block, "OTHERS": block,
        "PRECISION": "tf32",
    }  # fmt: skip


def _compiled(
    kernel: Any, number_format: str, constants: dict[str, Any], warps: int, capability: int
) -> tuple[int, int, int, int]:
    """(registers, spilled bytes, shared bytes, bytes of the widest load)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {}
    for name in kernel.arg_names:
        if name in constants:
            types[name] = "constexpr"
        elif name in INTEGERS or name in NUMBERS:
            types[name] = "fp32" if name in NUMBERS else "i32"
        else:
            types[name] = POINTERS.get(name, f"*{number_format}")
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, (name, of) in enumerate(types.items())
        if of[0] == "*" or name in MULTIPLES
    }
    places = {name: (i,) for i, name in enumerate(types)}
    source = ASTSource(
        fn=kernel,
        signature=types,
        constexprs={places[name]: value for name, value in constants.items()},
        attrs=aligned,
    )
    options = {"num_warps": warps, "num_stages": 2}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    loads = re.findall(r"ld\.global\S*?(?:\.v(\d))?\.b(\d+)\s", made.asm["ptx"])
    widest = max(int(count or 1) * int(bits) // 8 for count, bits in loads)
    return *_resources(made.asm["cubin"]), made.metadata.shared, widest


def _resources(binary: bytes) -> tuple[int, int]:
    """Registers and bytes on the stack, as NVIDIA's own tool reads them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "kernel.cubin"
        file.write_bytes(binary)
        said = subprocess.run(
            [tool, "-res-usage", file], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {said[:200]}")
    return int(found[1]), int(found[2])
