"""What a GPU would be asked to do: kernels, bytes and operations, counted without one.

Tensors of the pretended device (`tests.gpu.pretended`) hold no numbers here, only shapes, and every
operation that reaches the device becomes a `Kernel`. What torch's CUDA backend does in one piece
and a device made in Python does not (attention, dropout, the kernels of nmt), enters by its shapes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from nmt.kernels import choice, relative
from nmt.training import crossentropy
from tests.gpu import by_shape
from tests.gpu import pretended as device
from tests.gpu.pretended import GpuTensor, Pretended

LAUNCH = 5e-6  # seconds of the host for a kernel
BANDWIDTH = 3.0e12  # bytes/s of an H200 that a kernel may hope for, of 4.3e12 measured
PEAK = 650e12  # operations/s likewise in bfloat16, of 790e12 measured

FREE = {  # give memory or look at it, without a kernel
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "alias"),
    *("_reshape_alias", "_unsafe_view", "lift_fresh", "set_", "resize_"),
}
PICKING = {"embedding", "index", "gather", "index_select"}  # read of the first what they give
ADDING = {"scatter_add_", "index_add_", "index_put_"}  # change as much of it as is added
FILLING = {"zero_", "fill_", "copy_", "random_", "uniform_", "normal_", "bernoulli_"}
SEVERAL = {  # assumed of torch's CUDA backend, where it needs more than one kernel
    "embedding_dense_backward": 6,  # sorts the ids, then adds rows of equal ids
    "index_put_": 6,  # likewise, where it accumulates
}
TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # lists -> tensors of a foreach kernel, and its
CHUNK, CHUNKS = 65536, 320  # parts (ATen/native/cuda/MultiTensorApply.cuh, for 4 KB of arguments)


Module = TypeVar("Module", bound=torch.nn.Module)


class Kernel(NamedTuple):
    """One operation on the device."""

    name: str
    launches: int
    bytes: int  # read and written
    operations: int  # of products, a multiplication and an addition each
    reads: dict[int, int]  # memory -> bytes
    writes: dict[int, int]
    elements: int  # of its greatest result

    @property
    def seconds(self) -> float:
        """On the GPU: as long as its bytes or its operations need."""
        return max(self.bytes / BANDWIDTH, self.operations / PEAK)


class Counting(Pretended):
    """Puts down every kernel, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.held: list[Any] = []  # all memory: so that no two pieces are told by one address

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors: list[Tensor] = []
        plain = device._held(args, tensors)
        named = {name: device._held(value, tensors) for name, value in kwargs.items()}
        here = any(isinstance(t, GpuTensor) for t in tensors)
        asked = kwargs.get("device")
        there = here if asked is None else torch.device(asked).type == "gpu"
        if there and asked is not None:
            named["device"] = torch.device("meta")
        out = device.KERNELS.get(func, func)(*plain, **named)
        if not there:
            return out
        self._count(func, plain, named, out)
        out = device._there(out)
        return return_and_correct_aliasing(func, args, kwargs, out) if here else out

    def _count(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Put down what the operation does, if it does anything."""
        name = func.overloadpacket.__name__
        if func.is_view or name in FREE:
            return
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        reads, writes = self._touched(func, name, args, kwargs, made)
        packet = func.overloadpacket
        counted = packet in flop_registry
        operations = flop_registry[packet](*args, **kwargs, out_val=out) if counted else 0
        lists = [part for part in (*args, *kwargs.values()) if isinstance(part, list)]
        lists = [part for part in lists if part and isinstance(part[0], Tensor)]
        launches = SEVERAL.get(name, 1)
        if name.startswith(("_foreach", "_fused")):
            launches = foreach(lists, state=name.startswith("_fused"))
            launches += name == "_foreach_norm"  # adds up what the parts gave
        if name == "native_layer_norm_backward":  # one kernel for x, one for weight and bias
            self.add(f"{name}, weights", reads[:2], [w for w in writes if w[0] is not made[0]])
            writes = [w for w in writes if w[0] is made[0]]
        self.add(name, reads, writes, operations, launches)

    def _touched(
        self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], made: list[Tensor]
    ) -> tuple[list[tuple[Tensor, int]], list[tuple[Tensor, int]]]:
        """What is read and what is written, with the bytes of each."""
        reads, writes = [], []
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        for place, argument in enumerate(func._schema.arguments):
            changed = argument.alias_info is not None and argument.alias_info.is_write
            for t in tree_leaves(given.get(argument.name)):
                if not isinstance(t, Tensor):
                    continue
                size = size_of(t)
                if place == 0 and name in PICKING:
                    size = min(size, sum(map(size_of, made)))
                if place == 0 and name in ADDING:
                    size = min(size, size_of(args[-1]))
                if not (changed and (argument.is_out or name in FILLING)):
                    reads.append((t, size))
                if changed:
                    writes.append((t, size))
        own = {key_of(t) for t, _ in writes}
        return reads, writes + [(t, size_of(t)) for t in made if key_of(t) not in own]

    def add(
        self,
        name: str,
        reads: Iterable[tuple[Tensor, int]],
        writes: Iterable[tuple[Tensor, int]],
        operations: int = 0,
        launches: int = 1,
    ) -> None:
        """Put down one kernel, or several that belong together."""
        reads, writes = (
            [(device._held(t, []), size) for t, size in part] for part in (reads, writes)
        )
        self.held += [t.untyped_storage() for t, _ in (*reads, *writes)]
        total = sum(size for _, size in (*reads, *writes))
        elements = max((t.numel() for t, _ in writes), default=0)
        came, went = ({key_of(t): size for t, size in part} for part in (reads, writes))
        self.kernels.append(Kernel(name, launches, total, operations, came, went, elements))


def key_of(t: Tensor) -> int:
    """The memory that a tensor, or a view of it, lies in."""
    return int(t.untyped_storage()._cdata)


def size_of(t: Tensor) -> int:
    """Bytes of a tensor in memory; what is repeated by a view counts once."""
    return min(t.numel() * t.element_size(), t.untyped_storage().nbytes())


def foreach(lists: Sequence[Sequence[Tensor]], state: bool = False) -> int:
    """Kernels of one operation on lists of tensors; `state`: the last list is of step numbers."""
    most = TENSORS[min(5, len(lists) - state)]
    launches = tensors = chunks = 0
    for t in lists[0]:
        tensors += 1
        parts = -(-t.numel() // CHUNK)
        for part in range(parts):
            chunks += 1
            last = part == parts - 1
            if (last and tensors == most) or chunks == CHUNKS:
                launches, chunks, tensors = launches + 1, 0, 0 if last else 1
    return launches + (chunks > 0)


@contextmanager
def counted() -> Iterator[Counting]:
    """Count kernels herein, of tensors without numbers that `moved` and `made` give."""
    counting = Counting()
    with ExitStack() as stack:
        for patch in (
            mock.patch.object(GpuTensor, "is_cuda", True),
            mock.patch.object(Tensor, "pin_memory", device._pin),
            mock.patch.object(choice, "TRITON", True),
            mock.patch.dict(crossentropy.LOGITS, gpu=crossentropy.LOGITS["cuda"]),
            mock.patch("torch.nn.utils.clip_grad._has_foreach_support", lambda *_: True),
            mock.patch.object(F, "dropout", by_shape.dropout),
            mock.patch.object(F, "scaled_dot_product_attention", by_shape.Attention(counting)),
            mock.patch.object(relative, "_forward", by_shape.RelativeForward(counting)),
            mock.patch.object(relative, "_backward", by_shape.RelativeBackward(counting)),
            mock.patch.object(crossentropy, "smoothed_", by_shape.Smoothed(counting)),
            counting,
        ):
            stack.enter_context(patch)
        yield counting


def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of the device that holds no numbers."""
    return GpuTensor(torch.empty(*shape, dtype=dtype, device="meta"))


def moved(module: Module) -> Module:
    """Put the module's tensors onto the device, without numbers; what is shared stays so."""
    there: dict[int, Any] = {}
    for part in module.modules():
        for kept in (part._parameters, part._buffers):
            for name, t in kept.items():
                if t is not None and id(t) not in there:
                    empty = made(*t.shape, dtype=t.dtype)
                    wanted = isinstance(t, torch.nn.Parameter)
                    there[id(t)] = torch.nn.Parameter(empty, t.requires_grad) if wanted else empty
                kept[name] = None if t is None else there[id(t)]
    return module
