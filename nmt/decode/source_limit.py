"""How long a source may be for the memory, foreseen from what shorter ones take.

Which tensors grow with the square of the length depends on the encodings, those of plug-ins too:
so it is measured. Sources of three lengths give the square that goes through them.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GIANT = 10_000  # pieces: no sentence, whatever the memory
ALWAYS = 1000  # pieces for which there is always room: so common lines cost no measurement
LENGTHS = (250, 500, 1000)  # of sources, eos included
STEPS = (16, 64)  # of outputs
SHARE = 2  # of the memory one part in so many: others live there, and kernels need room to work


class MemoryMeter(TorchDispatchMode):
    """Counts the bytes of the tensors that are made and held meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._holders: dict[int, int] = {}  # by address of the storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute as always, and count what came."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._hold(tensor)
        return made

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        at, size = storage.data_ptr(), storage.nbytes()
        if not self._holders.get(at):
            self._holders[at] = 0
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
        self._holders[at] += 1
        weakref.finalize(tensor, self._release, at, size)

    def _release(self, at: int, size: int) -> None:
        self._holders[at] -= 1
        if not self._holders[at]:
            self.bytes -= size


def longest(search: Callable[[int, int], None], steps: Callable[[int], int], memory: int) -> int:
    """Return how many pieces, eos apart and at most GIANT, a source may have.

    `search(length, steps)` searches for one translation of `steps` pieces, of a source of `length`
    with eos; `steps(pieces)` is how many a source may need; `memory`: bytes of the device.
    """

    def peak(length: int, count: int) -> int:
        with MemoryMeter() as live:
            search(length, count)
        return live.peak

    few, many = STEPS
    (x, fx), (y, fy), (z, fz) = ((n, peak(n, few)) for n in LENGTHS)
    step = max(0, peak(x, many) - fx) / (many - few)  # bytes of each further piece of the output
    slope = (fy - fx) / (y - x)
    bend = max(0.0, ((fz - fy) / (z - y) - slope) / (z - x))  # Newton's divided differences

    def fits(pieces: int) -> bool:
        n = pieces + 1
        need = fx + slope * (n - x) + bend * (n - x) * (n - y) + step * (steps(pieces) - few)
        return SHARE * need <= memory

    low, high = ALWAYS, GIANT + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
