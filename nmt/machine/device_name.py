"""The name of a device, as users give it, for every library that computes there."""

from collections.abc import Callable
from typing import NamedTuple

from nmt.errors import Exit, UserError


class DeviceName(NamedTuple):
    """A device; its text is the name."""

    type: str  # cpu or cuda
    number: int | None = None

    def __str__(self) -> str:
        return self.type if self.number is None else f"{self.type}:{self.number}"


def parse(device: object, gpus: Callable[[], int], library: str) -> DeviceName:
    """Read cpu, cuda, cuda:1, or auto (a GPU if there is one); `gpus` says how many a library sees.

    Anything whose text is a name will do, as a torch.device. Raises UserError: exit 2 for another
    name, 69 for a device that is not there.
    """
    name = str(device)
    if name == "auto":
        name = "cuda" if gpus() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise UserError(f"device={name}: choose one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    if kind == "cuda" and int(index or 0) >= gpus():
        raise UserError(f"device={name}: {library} finds no such GPU here", Exit.UNAVAILABLE)
    return DeviceName(kind, int(index) if index else None)
