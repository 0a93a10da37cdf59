"""Whether numbers of fewer bits make products faster on this processor, measured here.

The names of a processor's instructions do not say which of them torch's libraries use (variables
such as ONEDNN_MAX_CPU_ISA forbid some), nor that a kernel for them is a fast one. Without fast ones
torch computes the same by other means, several to a thousand times as slowly as in float32.
"""

from copy import deepcopy

import torch
from torch import Tensor

from nmt.machine.products import Linear, factors
from nmt.machine.timing import is_faster, trial

NO_BFLOAT16 = "%s.precision=bfloat16: not faster than float32 on this CPU: float32 is used"
NO_UNITS = "%s.precision=auto: this GPU has no units for bfloat16: float32 is used"


def product_format(x: Tensor) -> torch.dtype:
    """The number format of products with x: that of autocast where it is on, but for float64."""
    device = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


def rounded(x: Tensor) -> Tensor:
    """x in that format. Autocast rounds anew for each product; several can read this one."""
    return x.to(product_format(x))


@trial()
@torch.inference_mode()
def bfloat16_is_faster(times: float = 1.0) -> bool:
    """Tell whether this CPU multiplies in bfloat16 so many times as fast as in float32, or faster.

    Tried once per process, in milliseconds; the answers lie far apart: where no instructions for
    bfloat16 are used, its products take 1.3 to 10 times as long as those of float32.
    """
    linear, x = example()
    lower, y = deepcopy(linear).bfloat16(), x.bfloat16()
    return is_faster(lambda: lower(y), lambda: linear(x), times)


def example() -> tuple[Linear, torch.Tensor]:
    """A linear layer and inputs [rows, inputs] to try formats on, the same always."""
    x, weight, bias = factors()
    with torch.random.fork_rng(devices=()):
        linear = Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict({"weight": weight, "bias": bias})
    return linear, x
