"""A pretended GPU: tensors that say they lie on a device and keep their numbers on the CPU.

Under `pretended()` torch knows a device `gpu`. An operation on tensors of both devices raises, as
would on a GPU, and what makes the host wait for a GPU is put down with the place in nmt that asked:
reading a number, copies between the devices, and sizes that depend on the numbers (nonzero,
boolean indices).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

aten: Any = torch.ops.aten
GPU = torch.device("privateuseone", 0)  # called gpu, see below

READS = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
SIZED = {  # whose results have a size that the numbers decide
    aten.nonzero.default, aten.masked_select.default, aten._unique2.default,
    aten.unique_dim.default, aten.unique_consecutive.default, aten.bincount.default,
    aten.repeat_interleave.Tensor,
}  # fmt: skip
COPIES = {aten._to_copy.default, aten.copy_.default, aten._copy_from.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default,
           aten._index_put_impl_.default, aten._unsafe_index.Tensor}  # fmt: skip
FREED = {aten._pack_padded_sequence.default}  # takes and gives lengths that lie on the CPU
NMT = str(Path(__file__).parents[2] / "nmt")


class GpuTensor(Tensor):
    """A tensor of the pretended device, around one of the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "GpuTensor":
        made: GpuTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=GPU,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of `pretended`")


class Pretended(TorchDispatchMode):
    """Computes on the CPU what is asked of the device, and keeps a list of waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()  # `file.py:name, operation` -> how often
        self.launches = 0  # operations that the device was asked for, but copies

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors: list[Tensor] = []
        plain = _held(args, tensors)
        named = {name: _held(value, tensors) for name, value in kwargs.items()}
        here = any(isinstance(t, GpuTensor) for t in tensors)
        asked = kwargs.get("device")
        there = here if asked is None else torch.device(asked).type == "gpu"
        if here or there:
            self.launches += func not in COPIES
            self._look(func, tensors, here, there, args, kwargs)
        if asked is not None:
            named["device"] = torch.device("cpu")
        out = KERNELS.get(func, func)(*plain, **named)
        if not there:
            return out
        if func in FREED:
            return GpuTensor(out[0]), out[1]
        out = _there(out)
        return return_and_correct_aliasing(func, args, kwargs, out) if here else out

    def _look(
        self, func: Any, tensors: list[Tensor], here: bool, there: bool, args: Any, kwargs: Any
    ) -> None:
        """Put down a wait; RuntimeError where tensors of two devices meet."""
        strange = [t for t in tensors if not isinstance(t, GpuTensor)]
        if func in COPIES:
            ahead = kwargs.get("non_blocking") or (
                func is aten.copy_.default and args[2:] == (True,)
            )
            free = ahead and all(hasattr(t, "pinned") for t in strange)
            if (here != there or strange) and not (there and free):
                self.wait(str(func).split(".")[1])
        elif func in INDEXED:
            indices = [t for t in args[1] if isinstance(t, Tensor)]
            if any(not isinstance(t, GpuTensor) or t.dtype == torch.bool for t in indices):
                self.wait(str(func).split(".")[1])
        elif here and any(t.dim() for t in strange) and func not in FREED:
            raise RuntimeError(f"{func}: a tensor of the CPU among those of the device")
        if here and (func in READS or func in SIZED):
            self.wait(str(func).split(".")[1])

    def wait(self, operation: str) -> None:
        """Put down that the host waits for the device in an operation."""
        frame = sys._getframe()
        while frame.f_back is not None and not frame.f_code.co_filename.startswith(NMT):
            frame = frame.f_back
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
        self.waits[f"{place} {operation}"] += 1


class Event:
    """An event of a stream; to wait for it is free while the device has later work to do."""

    def __init__(self, device: Pretended) -> None:
        self.device, self.launches = device, 0

    def record(self, stream: Pretended | None = None) -> None:
        if stream is None:  # one GPU of several: another is the current one
            raise RuntimeError("an event is recorded on the stream of another device")
        self.launches = stream.launches

    def synchronize(self) -> None:
        if self.device.launches == self.launches:
            self.device.wait("synchronize")


def _held(given: Any, tensors: list[Tensor]) -> Any:
    """The same with tensors of the CPU; notes all tensors that there are."""
    if isinstance(given, Tensor):
        tensors.append(given)
        return given.held if isinstance(given, GpuTensor) else given
    if isinstance(given, (list, tuple)):
        return [_held(one, tensors) for one in given]
    return given


def _there(made: Any) -> Any:
    """The same with tensors of the device."""
    if isinstance(made, (list, tuple)):
        return type(made)(_there(one) for one in made)
    return GpuTensor(made) if isinstance(made, Tensor) else made


def _lstm(
    x: Tensor, h: Tensor, c: Tensor, xb: Tensor | None = None, hb: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = _sum(x, h, xb, hb)
    i, f, g, o = gates.chunk(4, 1)
    after = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * after.tanh(), after, gates


def _lstm_backward(
    by_h: Tensor | None, by_c: Tensor | None, c: Tensor, after: Tensor, gates: Tensor, bias: bool
) -> tuple[Tensor | None, ...]:
    by_gates, by_before = aten._thnn_differentiable_lstm_cell_backward(
        by_h, by_c, gates, torch.zeros_like(gates), None, None, c, after
    )[1:3]
    return by_gates, by_before, by_gates.sum(0) if bias else None


def _gru(
    x: Tensor, h: Tensor, before: Tensor, xb: Tensor | None = None, hb: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    x, h = _sum(x, xb), _sum(h, hb)
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    z, n = (xz + hz).sigmoid(), (xn + (xr + hr).sigmoid() * hn).tanh()
    return n + z * (before - n), torch.cat([x, h, before], 1)


def _gru_backward(by_h: Tensor, kept: Tensor, bias: bool) -> tuple[Tensor | None, ...]:
    width = by_h.shape[1]
    x, h, before = kept.split([3 * width, 3 * width, width], 1)
    by_x, by_h, by_before = aten._thnn_differentiable_gru_cell_backward(
        by_h, x, h, before, None, None
    )[:3]
    sums = (by_x.sum(0), by_h.sum(0)) if bias else (None, None)
    return by_x, by_h, by_before, *sums


def _sum(*parts: Tensor | None) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*(t for t in parts if t is not None))).sum(0)


KERNELS: dict[Any, Callable[..., Any]] = {  # that a CPU does not have
    aten._thnn_fused_lstm_cell.default: _lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}


def _pin(t: Tensor) -> Tensor:
    """What a GPU may copy while the host goes on bears a mark."""
    t.pinned = True  # type: ignore[attr-defined]
    return t


def _tolist(t: Tensor) -> Any:
    """Torch itself has none for a class of tensors."""
    return TOLIST(t.cpu() if isinstance(t, GpuTensor) else t)


TOLIST = Tensor.tolist


class GpuModule(_DummyBackendModule):
    """What torch asks of the module `torch.gpu`."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


@contextmanager
def pretended() -> Iterator[Pretended]:
    """Tensors of the device `gpu` work herein; gives the list of waits."""
    mode = Pretended()
    tensors = mock.patch.multiple(Tensor, pin_memory=_pin, tolist=_tolist)
    streams = mock.patch.multiple(
        "torch.cuda",
        Event=lambda: Event(mode),
        current_stream=lambda device=None: mode if device == GPU else None,
    )
    with tensors, streams, mode:
        yield mode


def _lowered(op: Any) -> Callable[..., Any]:
    """The operation under autocast: in bfloat16."""

    def run(*args: Any, **kwargs: Any) -> Any:
        low = [
            t.to(torch.bfloat16) if isinstance(t, Tensor) and t.dtype == torch.float32 else t
            for t in args
        ]
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            return op(*low, **kwargs)

    return run


KEY = "AutocastPrivateUse1"
AUTOCAST = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))
LOWERED = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
REST = torch.library.Library("_", "IMPL")
REST.fallback(torch.library.fallthrough_kernel, KEY)
PRODUCTS = torch.library.Library("aten", "IMPL")
for name in LOWERED:
    PRODUCTS.impl(name, _lowered(getattr(aten, name)), KEY)
# At once: the first backward pass of a process makes a thread for each device that there is then.
_setup_privateuseone_for_python_backend("gpu", GpuModule())
