"""How this machine multiplies fastest: one record, measured once, that every choice reads.

The names of a processor's instructions do not say which of them torch's libraries use (variables
such as ONEDNN_MAX_CPU_ISA forbid some), nor whether a kernel for them is fast. So products are
timed, for some hundredths of a second, before the first choice; forked processes inherit the
record, those that a command starts read it from NMT_MACHINE, and a resumed run from its checkpoint.
"""

import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.machine.int8 import FORMATS, Int8, Integers, is_exact

VARIABLE = "NMT_MACHINE"  # of the environment: the text form of a Machine, or a part of it
CPUINFO = Path("/proc/cpuinfo")

ONEDNN = 1.25  # times as fast as torch's own choice; nearer to 1, chance would decide the last bits
ONEDNN_FROM = 2**20  # multiplications of a product: below, oneDNN's own 10 microseconds decide
SEARCH = 2.0  # times as fast as in float32 products must be in bfloat16 for a search to gain
FUSED_FROM = 128  # keys from which attention on a CPU takes torch's fused kernel

ROWS, INPUTS, OUTPUTS = 128, 256, 512  # of the product timed: a decoding step of 32 sentences
ROUNDS, LONGEST = 30, 0.05  # at most, and seconds after which no further one begins

NO_BFLOAT16 = "%s.precision=bfloat16: not faster than float32 on this CPU: float32 is used"
NO_UNITS = "%s.precision=auto: this GPU has no units for bfloat16: float32 is used"


@dataclass(frozen=True)
class Machine:
    """What multiplies float32, bfloat16 and int8 here.

    `str` gives `float32=torch,bfloat16=1.72,int8=u8s8`: what the log and the checkpoints
    of a run say, and what NMT_MACHINE sets, all of it or some. Measured so far:

    - float32: oneDNN is 2.2 times as fast as MKL on AMD Zen 5 (family 26: 512-bit units, of which
      MKL uses half on AMD), and 1.0 to 1.1 times on Zen 4 (family 25) and on Intel.
    - bfloat16: faster in training on all three. On Zen 5 products are 1.7 times as fast, but a
      search takes 1.3 times as long (SEARCH).
    - int8: u8s8 with VNNI or AMX. Without them sums of two products saturate in 16 bits: u8s7.
    - fused attention: chosen on Intel with AMX. On Zen 5 a training step at 24 to 100 tokens takes
      .97 to .99 of the time with it on one thread, 1.00 to 1.05 on two.
    """

    processor: str  # as its maker names it, with family and model
    float32: str  # "onednn", or "torch": the library that torch itself takes, MKL on x86
    bfloat16: float  # speed of products relative to those of float32
    int8: str  # the first of `int8.FORMATS` that is exact and faster than float32, or "none"

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether training gains by bfloat16 on this CPU."""
        return self.bfloat16 > 1

    @property
    def searches_in_bfloat16(self) -> bool:
        """Whether a search gains by it, which rounds and copies more for each product."""
        return self.bfloat16 > SEARCH

    @property
    def integers(self) -> Integers | None:
        """The format of products in int8; None where float32 is faster."""
        return FORMATS.get(self.int8)

    def searched_in(self, precision: str) -> str:
        """The number format of a search on this CPU, given decode.precision."""
        slow = {"bfloat16": not self.searches_in_bfloat16, "int8": self.integers is None}
        if slow.get(precision):
            return "float32"
        return self.int8 if precision == "int8" else precision

    def __str__(self) -> str:
        return f"float32={self.float32},bfloat16={self.bfloat16},int8={self.int8}"


_machine: Machine | None = None
_measuring = threading.Lock()  # two that measure would restore each other's one thread, for good


def this_machine() -> Machine:
    """The record of this process; measured at the first call, except for what NMT_MACHINE states.

    Raises UserError where NMT_MACHINE cannot be read.
    """
    global _machine
    if _machine is None:
        with _measuring:
            if _machine is None:
                stated = parse(os.environ.get(VARIABLE, ""))
                fields = {} if len(stated) == 3 else measured()
                _machine = Machine(processor(), **fields | stated)
    return _machine


def use(text: str) -> None:
    """Use the values in the text form of a Machine from now on."""
    global _machine
    _machine = replace(this_machine(), **parse(text))


def parse(text: str) -> dict[str, Any]:
    """The fields in the text form of a Machine; raises UserError for what is none."""
    values = {"float32": ("onednn", "torch"), "int8": (*FORMATS, "none")}
    fields: dict[str, Any] = {}
    for setting in filter(None, text.split(",")):
        key, _, value = setting.partition("=")
        if key == "bfloat16" and value.replace(".", "", 1).isdecimal():
            fields[key] = float(value)
        elif value in values.get(key, ()):
            fields[key] = value
        else:
            raise UserError(
                f"{VARIABLE}: {setting}: expected float32=onednn or torch, bfloat16=SPEED relative "
                f"to float32, and int8={', '.join(FORMATS)} or none"
            )
    return fields


@torch.inference_mode()
def measured() -> dict[str, Any]:
    """The fields of a Machine, but for the processor; random numbers and threads stay the same."""
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, INPUTS), (OUTPUTS, INPUTS), (OUTPUTS,)
    draw = partial(torch.randn, generator=generator, dtype=torch.float32)
    x, weight, bias = map(draw, shapes)
    low = [t.bfloat16() for t in (x, weight, bias)]
    ways: dict[str, Callable[[], object]] = {
        "torch": lambda: F.linear(x, weight, bias),
        "bfloat16": lambda: F.linear(*low),
    }
    if has_onednn():
        ways["onednn"] = lambda: onednn(x, weight, bias)
    seconds = least_seconds(ways)
    library = "onednn" if ONEDNN * seconds.get("onednn", 1e9) < seconds["torch"] else "torch"
    return {
        "float32": library,
        "bfloat16": round(seconds[library] / seconds["bfloat16"], 2),
        "int8": _fastest_integers(x, weight, bias, ways[library]),
    }


def _fastest_integers(x: Tensor, weight: Tensor, bias: Tensor, plain: Callable[[], object]) -> str:
    """The first format that this CPU multiplies exactly, and faster than the plain product."""
    layer = nn.Linear(INPUTS, OUTPUTS, device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    for name, integers in FORMATS.items():
        if is_exact(integers):
            seconds = least_seconds({"int8": partial(Int8(layer, integers), x), "plain": plain})
            if seconds["int8"] < seconds["plain"]:
                return name
    return "none"


def least_seconds(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of each call on one core, over rounds in which they alternate.

    The first calls are not counted, as they may compile code. In CPU time of this thread, so that
    other processes on a busy machine do not decide.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for call in calls.values():
            call()
        least = dict.fromkeys(calls, float("inf"))
        began, rounds = time.thread_time(), 0
        while rounds < ROUNDS and time.thread_time() - began < LONGEST:
            for name, call in calls.items():
                before = time.thread_time()
                call()
                least[name] = min(least[name], time.thread_time() - before)
            rounds += 1
    finally:
        torch.set_num_threads(threads)
    return least


def has_onednn() -> bool:
    """Whether this torch has the operator that `onednn` calls."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product by oneDNN: x [..., inputs], weight [outputs, inputs]; without a gradient."""
    if not (weight.is_contiguous() or weight.T.is_contiguous()):
        weight = weight.contiguous()  # with gaps it would take hundreds of times as long
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return outputs


def processor() -> str:
    """Name, family and model of this processor, as far as the system states them."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    lines = (line.partition(":") for line in text.partition("\n\n")[0].split("\n"))
    facts = {key.strip(): value.strip() for key, _, value in lines}
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = {"family": facts.get("cpu family"), "model": facts.get("model")}
    return ", ".join([name, *(f"{key} {number}" for key, number in numbers.items() if number)])
