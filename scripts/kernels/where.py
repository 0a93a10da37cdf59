"""Where Triton kernels run: on a GPU, or on a CPU in Triton's interpreter."""

import os
from importlib.util import find_spec
from typing import Any

import torch

from nmt.errors import Exit, UserError

INTERPRET = "TRITON_INTERPRET"


def triton_or_refuse() -> None:
    """Raise UserError where Triton is not installed."""
    if find_spec("triton") is None:
        raise UserError(
            "triton: not installed; it comes with torch for GPUs on Linux, and pip install triton "
            "is enough for a CPU",
            Exit.UNAVAILABLE,
        )


def device() -> torch.device:
    """A GPU if there is one, else the CPU, with kernels that Triton interprets.

    Called before the first kernel is imported: Triton decides then.
    """
    triton_or_refuse()
    if torch.cuda.is_available():
        return torch.device("cuda")
    os.environ[INTERPRET] = "1"
    _mend_bfloat16()
    return torch.device("cpu")


def _mend_bfloat16() -> None:
    """Let Triton 3.9's interpreter compute in bfloat16, which it holds as 16 bits in uint16.

    It multiplies these as integers in `tl.dot`, and cuts float32 off where GPUs round it.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    if getattr(interpreter, "mended", False):
        return
    convert, dot = interpreter._convert_float, interpreter.InterpreterBuilder.create_dot

    def converted(x: Any, old: Any, new: Any, rounding: Any) -> Any:
        if old == tl.bfloat16 and new == tl.float32:
            return x.view(np.uint16).astype(np.uint32) << 16
        if old == tl.float32 and new == tl.bfloat16:
            bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
            return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return convert(x, old, new, rounding)

    def wide(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        data = converted(x.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def multiplied(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return dot(self, wide(a), wide(b), *more)

    interpreter._convert_float = converted
    interpreter.InterpreterBuilder.create_dot = multiplied
    interpreter.mended = True
