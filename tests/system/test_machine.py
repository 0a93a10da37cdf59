"""The choices for a processor, and its name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt.system import machine
from nmt.system.machine import this_machine

AMD = "vendor_id\t: AuthenticAMD\ncpu family\t: {}\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
INTEL = AMD.replace("AuthenticAMD", "GenuineIntel").replace("AMD EPYC", "Intel Xeon")


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in the place of the system's, read by the next call of `this_machine`."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "_machine", None)
    yield tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("facts", "packs", "onednn"),
    [
        (AMD.format(24), False, False),
        (AMD.format(25), True, False),
        (AMD.format(26), True, True),
        (INTEL.format(26), False, False),
        ("", False, False),
    ],
)
def test_onednn_multiplies_on_late_processors_of_amd(
    facts: str, packs: bool, onednn: bool, cpuinfo: Path
) -> None:
    cpuinfo.write_text(facts)
    assert (this_machine().packs, this_machine().onednn) == (packs, onednn)


def test_what_torch_does_not_answer_is_not_used(
    cpuinfo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_vnni_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name)
    assert not this_machine().int8 and not this_machine().searches_in_bfloat16
    assert this_machine().searched_in("int8") == "float32"


def test_the_name_of_a_processor(cpuinfo: Path) -> None:
    cpuinfo.write_text(f"{AMD.format(25)}\n{AMD.format(25).replace('EPYC', 'other')}")
    assert machine.processor() == "AMD EPYC, family 25, model 17"
    cpuinfo.unlink()
    assert machine.processor()
