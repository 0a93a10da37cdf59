"""How many CPUs this process may use, and how many threads it may have."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")  # a line for each hierarchy: number:controllers:/path
CGROUPS = Path("/sys/fs/cgroup")


def cpus() -> int:
    """CPUs that this process is bound to, but no more than the quotas of its cgroups allow.

    Of a quota of 2.5 CPUs two count: a third thread would be stopped half of the time, and the
    others wait for it.
    """
    bound_cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        bound_cpus = len(os.sched_getaffinity(0))
    return max(1, min([bound_cpus, *map(int, _quotas())]))


def threads() -> int:
    """Threads in all: as many as `cpus`, or OMP_NUM_THREADS where that is fewer."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cpus(), int(number)) if number.isdecimal() and int(number) else cpus()


def cores() -> int:
    """How many processes of one thread run at full speed.

    That OMP_NUM_THREADS is 1 under torchrun is its own doing, for ranks that share a machine.
    """
    return cpus() if "TORCHELASTIC_RUN_ID" in os.environ else threads()


def _quotas() -> Iterator[float]:
    """The CPUs that each cgroup of this process allows, in v2 and v1; nothing without a quota."""
    for directory in cgroups("cpu"):
        for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
            with suppress(OSError, ValueError):  # no such controller, or "max"
                texts = ((directory / name).read_text(encoding="utf-8") for name in names)
                quota, period = map(int, " ".join(texts).split())
                if quota > 0:  # -1: none
                    yield quota / period


def cgroups(controller: str) -> Iterator[Path]:
    """The directories of the process's cgroups and those above, each of which may have a limit.

    A container may see its own as the root of all, whatever its path outside.
    """
    lines = list[str]()
    with suppress(OSError):
        lines = MEMBERSHIP.read_text(encoding="utf-8").split("\n")
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUPS / (controller if controllers else "")
        place = root.joinpath(*[part for part in path.split("/") if part != ".."])
        yield from (d for d in (place, *place.parents) if d == root or root in d.parents)
