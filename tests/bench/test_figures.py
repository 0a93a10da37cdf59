"""What is made of the rounds: tables, and what is said of the machine."""

import pytest
import torch

from scripts.bench import encodings, workers
from scripts.bench.machine import describe, text
from scripts.bench.table import align, figure, ranged


def test_columns_stand_below_each_other() -> None:
    assert align([["", "x", ""], ["abc", "1.5", "why"], ["d", "22.0", ""]]) == [
        "        x",
        "abc   1.5  why",
        "d    22.0",
    ]
    assert figure(None, "{:.1f}") == ranged([]) == "-"
    assert ranged([3, 1, 2]) == "2 [1, 3]"


def test_the_peak_counts_what_it_multiplied() -> None:
    product = workers.multiply(32, "float32", "cpu")
    assert product["units"] % (2 * product["square"] ** 3) == 0
    assert product["seconds"] >= workers.LEAST


def test_the_machine_is_described() -> None:
    machine = describe("cpu", 3)
    assert machine["versions"]["torch"] == torch.__version__
    assert machine["threads"] == 3
    assert f"{machine['cores']} cores, 3 threads" in text(machine)


@pytest.mark.parametrize("gigabytes, choices", [(1, 1), (8, 2), (25, 9), (500, 9)])
def test_as_many_encodings_wait_as_memory_holds(gigabytes: int, choices: int) -> None:
    assert encodings.count_at_once(gigabytes * 10**9) == choices
