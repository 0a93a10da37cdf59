"""What a run's bits depend on beside its config: equal here and there, they come out equal."""

import logging

import torch

import nmt

log = logging.getLogger(__name__)


def describe(device: torch.device, bfloat16: bool) -> dict[str, str]:
    """Return versions, device, threads, instructions and number format, as checkpoints do."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "device": name,
        "threads": str(torch.get_num_threads()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "format": "bfloat16" if bfloat16 else "float32",
    }


def warn_of_changes(before: dict[str, str], now: dict[str, str]) -> None:
    """Warn that a resumed run will differ in its last digits from an uninterrupted one."""
    changes = [
        f"{key} {before.get(key, '?')} -> {value}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    if changes:
        log.warning("not bit-identical to a run without a stop: %s", ", ".join(changes))
