"""How many threads a process may have: bound CPUs, quotas of cgroups, OMP_NUM_THREADS."""

import os
from pathlib import Path

import pytest
import torch

from nmt.system import device, resources

V2, V1 = "0::/a/b\n", "5:memory:/a\n4:cpu,cpuacct:/a/b\n"
CASES = {
    "no quota": (V2, {"a/b/cpu.max": "max 100000\n"}, 64),
    "v2": (V2, {"a/b/cpu.max": "200000 100000\n"}, 2),
    "half a CPU": (V2, {"a/b/cpu.max": "50000 100000\n"}, 1),
    "two and a half": (V2, {"a/b/cpu.max": "250000 100000\n"}, 2),
    "above": (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
    "container": ("0::/docker/of/host\n", {"cpu.max": "400000 100000"}, 4),
    "outside the namespace": ("0::/../../a\n", {"a/cpu.max": "500000 100000"}, 5),
    "v1": (V1, {"cpu/a/b/cpu.cfs_quota_us": "600000", "cpu/a/b/cpu.cfs_period_us": "100000"}, 6),
    "v1, none": (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, 64),
    "v1, container": (V1, {"cpu/cpu.cfs_quota_us": "70000", "cpu/cpu.cfs_period_us": "10000"}, 7),
    "more than there are": (V2, {"a/cpu.max": "9900000 100000"}, 64),
    "damaged": ("nothing\n\n0::/a\n", {"a/cpu.max": "many of them"}, 64),
}


@pytest.mark.parametrize("name", CASES)
def test_quotas(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    membership, files, expected = CASES[name]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
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
    ("wanted", "expected"),
    [("3", 3), ("3,2", 3), (" 3 ", 3), ("16", 8), ("0", 8), ("", 8), ("many", 8), ("-1", 8)],
)
def test_the_variable_of_openmp(
    wanted: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "cpus", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert (resources.threads(), resources.cores()) == (expected, expected)
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert resources.threads() == 8


def test_torch_has_no_more_threads_than_the_quota_and_what_is_asked_for_counts_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "threads", lambda: 2)
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
    monkeypatch.setattr(resources, "cpus", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as torchrun does
    assert resources.cores() == 1
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert resources.cores() == 7
