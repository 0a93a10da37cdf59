"""CPUs, threads, memory and devices that this process may use; without torch."""

import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.errors import Exit, UserError

if TYPE_CHECKING:  # its import takes two seconds, and most of this does without
    import torch

MEMBERSHIP = Path("/proc/self/cgroup")  # a line for each hierarchy: number:controllers:/path
CGROUPS = Path("/sys/fs/cgroup")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # as glibc's malloc.h numbers them
PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


def cpus() -> int:
    """CPUs that this process is bound to, but no more than the quotas of its cgroups allow.

    Of a quota of 2.5 CPUs two count: a third thread would be stopped half of the time, and keep
    both waiting.
    """
    bound_cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        bound_cpus = len(os.sched_getaffinity(0))
    limits = _limits("cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    quotas = [quota // period for quota, period in limits if quota > 0]  # -1: none
    return max(1, min([bound_cpus, *quotas]))


def threads() -> int:
    """Threads in all: as many as `cpus`, or OMP_NUM_THREADS where that is fewer."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cpus(), int(number)) if number.isdecimal() and int(number) else cpus()


def cores() -> int:
    """How many processes of one thread run at full speed.

    That OMP_NUM_THREADS is 1 under torchrun is its own doing, for ranks that share a machine.
    """
    return cpus() if "TORCHELASTIC_RUN_ID" in os.environ else threads()


def usable_memory() -> int:
    """Return the most bytes of the host's memory that this process may use.

    That is the machine's memory, the limit of a container or a job, or what `ulimit -v` leaves.
    """
    bounds = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (soft := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        bounds.append(soft)
    limits = _limits("memory", ["memory.max"], ["memory.limit_in_bytes"])
    return min([*bounds, *(limit for (limit,) in limits)])


def _limits(controller: str, *files: list[str]) -> Iterator[list[int]]:
    """Yield the limits in files (v2, v1) of the process's cgroups and of all cgroups above.

    A container may see its own cgroup as the root, whatever its path outside.
    """
    text = MEMBERSHIP.read_text(encoding="utf-8") if MEMBERSHIP.exists() else ""
    for line in text.split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUPS / (controller if controllers else "")
        group = root.joinpath(*[part for part in path.split("/") if part != ".."])
        for directory in (d for d in (group, *group.parents) if d.is_relative_to(root)):
            for names in files:
                with suppress(OSError, ValueError):  # no such controller, or "max"
                    texts = ((directory / name).read_text(encoding="utf-8") for name in names)
                    yield [int(number) for number in " ".join(texts).split()]


def peak_memory(device: "torch.device") -> int:
    """Return the most bytes that tensors used on a GPU since the last call, or since the start.

    For the CPU it is the largest resident size of this process, libraries included.
    """
    if device.type == "cuda":
        import torch

        most = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return most
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where ru_maxrss begins with what the parent process had
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"))
        return int(peak[1]) * 1024 if peak else 0
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return high if sys.platform == "darwin" else high * 1024  # elsewhere it counts in KiB


def keep_memory() -> None:
    """Keep freed memory in this process, for the next tensors.

    glibc returns each larger block to the system at once and requests a new one, every page of
    which costs a fault and is zeroed: a tenth of a training step on CPUs.
    """
    _call_libc("mallopt", M_MMAP_MAX, 0)
    _call_libc("mallopt", M_TRIM_THRESHOLD, 2**31 - 1)


def release_memory() -> None:
    """Return to the system the unused memory between blocks in use.

    Kept memory is fragmented: what libraries never free, such as code that oneDNN compiles for each
    new shape of a product, lies between tensors, and larger tensors then need new memory.
    """
    _call_libc("malloc_trim", 0)


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have Linux send this process a signal when its parent ends; at once if it has ended."""
    _call_libc("prctl", PR_SET_PDEATHSIG, int(number))
    if parent not in (None, os.getppid()):
        os.kill(os.getpid(), number)


def _call_libc(name: str, *numbers: int) -> None:
    """Call a function of the C library; nothing happens where it has none (macOS, musl)."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*numbers)


class DeviceName(NamedTuple):
    """A device as users name it, for every library that computes there."""

    type: str  # cpu or cuda
    number: int | None = None

    def __str__(self) -> str:
        return self.type if self.number is None else f"{self.type}:{self.number}"


def parse_device(device: object, gpus: Callable[[], int], library: str) -> DeviceName:
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
