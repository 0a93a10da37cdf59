"""The memory that a process takes, and keeps."""

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.system import resources
from nmt.system.resources import memory_of, peak_memory

CPU = torch.device("cpu")


PEAK = """
from types import SimpleNamespace
from nmt.system.resources import peak_memory

cpu = SimpleNamespace(type="cpu")
before = peak_memory(cpu)
held = b"x" * 2**26  # written, so resident
after = peak_memory(cpu)
del held
print(before, after, peak_memory(cpu))
"""


def test_the_peak_of_a_process_is_the_most_it_ever_had() -> None:
    """Of a small process: this one may have had gigabytes."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, check=True)
    before, after, later = map(int, done.stdout.split())
    assert before < 2**26
    assert abs(after - before - 2**26) < 2**22  # Linux counts in batches of pages
    assert abs(later - after) < 2**22


@pytest.mark.parametrize("system, unit", [("linux", 1024), ("darwin", 1)])
def test_the_systems_own_figure_is_in_kib_or_bytes(
    system: str, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)  # no /proc
    monkeypatch.setattr(sys, "platform", system)
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert high * unit <= peak_memory(CPU) <= 2 * high * unit


def test_the_peak_of_a_gpu_begins_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, torch.device]] = []

    def most(where: torch.device) -> int:
        calls.append(("read", where))
        return 7

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", most)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda where: calls.append(("reset", where))
    )
    gpu = torch.device("cuda:1")
    assert peak_memory(gpu) == 7 and calls == [("read", gpu), ("reset", gpu)]


PAGES = """
import ctypes, resource, sys
from nmt.system.resources import keep_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def use():
    block = ctypes.c_void_p(libc.malloc(2**26))
    libc.memset(block, 1, 2**26)
    libc.free(block)

if sys.argv[1] == "keep":
    keep_memory()
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_kept_memory_is_not_asked_for_again() -> None:
    def faults(word: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PAGES, word], capture_output=True, check=True, text=True
        )
        return int(done.stdout)

    assert faults("keep") < 1000 < faults("no")  # each block has 16,384 pages of 4 kB


PIECES = """
import ctypes
from pathlib import Path
from nmt.system.resources import keep_memory, release_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_memory()
blocks = [ctypes.c_void_p(libc.malloc(2**20)) for _ in range(128)]
for block in blocks:
    libc.memset(block, 1, 2**20)
for block in blocks[::2]:  # what is kept lies between what is not
    libc.free(block)
before = resident()
release_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_unused_memory_between_pieces_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PIECES], capture_output=True, check=True)
    assert 60 * 2**20 < int(done.stdout) < 66 * 2**20  # of 64


@pytest.mark.parametrize(
    ("membership", "container", "job"),
    [
        ("0::/slurm/job\n", "memory.max", "slurm/memory.max"),
        ("5:memory:/slurm/job\n", "memory/memory.limit_in_bytes",
         "memory/slurm/job/memory.limit_in_bytes"),
    ],
)  # fmt: skip
def test_memory_is_what_a_process_may_have(
    membership: str, container: str, job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in (container, job):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(resources, "CGROUPS", tmp_path)
    monkeypatch.setattr(resources, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    machine = memory_of(CPU)
    assert 2**28 < machine < 2**46
    (tmp_path / "membership").write_text(membership)
    assert memory_of(CPU) == machine
    (tmp_path / container).write_text("max\n")
    assert memory_of(CPU) == machine
    (tmp_path / container).write_text(f"{machine // 2}\n")
    assert memory_of(CPU) == machine // 2
    (tmp_path / job).write_text(f"{machine // 4}\n")
    assert memory_of(CPU) == machine // 4
    monkeypatch.setattr(resource, "getrlimit", lambda which: (machine // 8, machine))
    assert memory_of(CPU) == machine // 8
