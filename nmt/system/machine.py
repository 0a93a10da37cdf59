"""How this processor multiplies fastest, by a table of those on which it was measured.

What torch does not tell, or a processor that is not in the table, means the slower choice.
"""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CPUINFO = Path("/proc/cpuinfo")
ONEDNN_FROM = 2**20  # multiplications of a product: below, oneDNN's own 10 microseconds decide
FUSED_FROM = 128  # keys from which attention on a CPU takes torch's fused kernel


@dataclass(frozen=True)
class Machine:
    """What multiplies float32, bfloat16 and int8 here; products in bfloat16 and int8 round more.

    - float32: oneDNN is 2.2 times as fast as MKL on AMD Zen 5 (family 26: 512-bit units, of which
      MKL uses half on AMD), and 1.0 to 1.1 times on Zen 4 (family 25) and on Intel. With weights
      that are laid out beforehand it is 1.1 to 1.5 times as fast on Zen 4 with many rows, and 1.4
      to 5.8 times with four, as many as one sentence has.
    - bfloat16: faster in training wherever there are units for it. On Zen 5 products are 1.7 times
      as fast, but a search takes 1.3 times as long: it gains with AMX alone (Intel).
    - int8: faster with VNNI or AMX, which add products in 32 bits.
    - fused attention: chosen on Intel with AMX. On Zen 5 a training step at 24 to 100 tokens takes
      .97 to .99 of the time with it on one thread, 1.00 to 1.05 on two.
    """

    processor: str  # as its maker names it, with family and model
    onednn: bool  # float32 by oneDNN, not by the library that torch takes, MKL on x86
    packs: bool  # a search in float32 by oneDNN, with weights laid out for it beforehand
    trains_in_bfloat16: bool
    searches_in_bfloat16: bool  # a search rounds and copies more for each product
    int8: bool

    def searched_in(self, precision: str) -> str:
        """The number format of a search on this CPU, given decode.precision."""
        faster = {"bfloat16": self.searches_in_bfloat16, "int8": self.int8}
        return precision if faster.get(precision, False) else "float32"


_machine: Machine | None = None


def this_machine() -> Machine:
    """The choices for the processor of this process."""
    global _machine
    if _machine is None:
        facts = _read_cpuinfo()
        is_amd, family = facts.get("vendor_id") == "AuthenticAMD", facts.get("cpu family", "0")
        names = "_linear_pointwise", "_reorder_linear_weight"
        has_onednn = all(hasattr(torch.ops.mkldnn, name) for name in names)
        _machine = Machine(
            processor(),
            onednn=is_amd and int(family) >= 26 and has_onednn,
            packs=is_amd and int(family) >= 25 and has_onednn,
            trains_in_bfloat16=_supports(torch.ops.mkldnn, "_is_mkldnn_bf16_supported"),
            searches_in_bfloat16=_supports(torch.cpu, "_is_amx_tile_supported"),
            int8=_supports(torch.cpu, "_is_vnni_supported"),
        )
    return _machine


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product by oneDNN: x [..., inputs], weight [outputs, inputs]; without a gradient."""
    if not (weight.is_contiguous() or weight.T.is_contiguous()):
        weight = weight.contiguous()  # with gaps it would take hundreds of times as long
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return outputs


def processor() -> str:
    """Name, family and model of this processor, as far as the system states them."""
    facts = _read_cpuinfo()
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = {"family": facts.get("cpu family"), "model": facts.get("model")}
    return ", ".join([name, *(f"{key} {number}" for key, number in numbers.items() if number)])


def _read_cpuinfo() -> dict[str, str]:
    """Return the facts of the first core in /proc/cpuinfo; empty on other systems."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    lines = (line.partition(":") for line in text.partition("\n\n")[0].split("\n"))
    return {key.strip(): value.strip() for key, _, value in lines}


def _supports(module: Any, question: str) -> bool:
    """Whether a private function of torch, which a version may lack, returns true."""
    return hasattr(module, question) and bool(getattr(module, question)())
