"""What a process may use and takes: CPUs, threads and memory, with quotas, limits and variables."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.system import device, resources
from nmt.system.resources import usable_memory

V2, V1 = "0::/a/b\n", "5:memory:/a\n4:cpu,cpuacct:/a/b\n"
CASES = {
    "two and a half": (V2, {"a/b/cpu.max": "250000 100000\n"}, 2),
    "above": (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
    "container": ("0::/docker/of/host\n", {"cpu.max": "400000 100000"}, 4),
    "outside the namespace": ("0::/../../a\n", {"a/cpu.max": "500000 100000"}, 5),
    "v1": (V1, {"cpu/a/b/cpu.cfs_quota_us": "600000", "cpu/a/b/cpu.cfs_period_us": "100000"}, 6),
    "v1, none": (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, 64),
    "v1, container": (V1, {"cpu/cpu.cfs_quota_us": "70000", "cpu/cpu.cfs_period_us": "10000"}, 7),
    "damaged": ("nothing\n\n0::/a\n", {"a/cpu.max": "many of them"}, 64),
}


def have_cpus(count: int, patch: pytest.MonkeyPatch) -> None:
    """Let the system bind this process to so many CPUs, without a quota."""
    patch.setattr(os, "sched_getaffinity", lambda process: set(range(count)), raising=False)
    patch.setattr(resources, "MEMBERSHIP", Path("/none"))


@pytest.mark.parametrize("name", CASES)
def test_quotas(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    membership, files, expected = CASES[name]
    have_cpus(64, monkeypatch)
    monkeypatch.setattr(resources, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(resources, "CGROUPS", tmp_path / "cgroups")
    assert resources.cpus() == 64  # no such files: another system
    (tmp_path / "membership").write_text(membership, encoding="utf-8")
    for place, text in files.items():
        path = tmp_path / "cgroups" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert resources.cpus() == expected


@pytest.mark.parametrize(
    ("wanted", "expected"), [("3", 3), (" 3,2", 3), ("16", 8), ("0", 8), ("many", 8)]
)
def test_the_variable_of_openmp(
    wanted: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_cpus(8, monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert (resources.threads(), resources.cores()) == (expected, expected)
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert resources.threads() == 8


def test_torch_has_no_more_threads_than_the_quota_and_what_is_asked_for_counts_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have_cpus(2, monkeypatch)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cpu = device.pick("cpu")
    torch.set_num_threads(4)
    try:
        assert torch.get_num_threads() == 4 and device.usable_threads() == 2
        device.set_up(cpu)
        assert torch.get_num_threads() == 2
        device.set_up(cpu, threads=3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_the_ranks_of_torchrun_have_processes_for_text(monkeypatch: pytest.MonkeyPatch) -> None:
    have_cpus(7, monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as torchrun does
    assert resources.cores() == 1
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert resources.cores() == 7


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
    machine = usable_memory()
    assert 2**28 < machine < 2**46
    (tmp_path / "membership").write_text(membership)
    assert usable_memory() == machine
    (tmp_path / container).write_text("max\n")
    assert usable_memory() == machine
    (tmp_path / container).write_text(f"{machine // 2}\n")
    assert usable_memory() == machine // 2
    (tmp_path / job).write_text(f"{machine // 4}\n")
    assert usable_memory() == machine // 4
    monkeypatch.setattr(resource, "getrlimit", lambda which: (machine // 8, machine))
    assert usable_memory() == machine // 8
