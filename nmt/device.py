"""Where to compute."""

import torch

from nmt.errors import Exit, UserError


def pick(name: str) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:1, or auto (a GPU if there is one).

    Raises UserError: exit 2 for a name that torch does not know, 71 for a device not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise UserError(f"device={name}: choose one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name}: torch finds no such GPU here", Exit.NO_MEMORY)
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The name of a GPU as its maker gives it; of other devices their kind, as "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the CPU where a GPU copies it from by itself, while the host goes on.

    Copy it by `to(device, non_blocking=True)`. For the CPU itself it stays where it is.
    """
    return tensor if device.type == "cpu" else tensor.pin_memory()
