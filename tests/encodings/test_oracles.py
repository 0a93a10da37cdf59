"""Every agreement with a package by other people holds, and would show a small change of ours."""

import pytest
import torch

from nmt.encodings.input.absolute import Absolute
from tests.encodings.agreement import Agreement, Sides, table
from tests.encodings.attending import dims
from tests.encodings.oracles import AGREEMENTS, embedded

VISIBLE = 1e-2  # 500 times the loosest bound


def sides_of(a: Agreement) -> Sides:
    if a.version is None:
        pytest.skip(f"needs {a.package}: pip install 'nmt-toolkit[oracles,ct2]'")
    return a.sides()


each = pytest.mark.parametrize(
    "a", AGREEMENTS, ids=lambda a: f"{a.encoding}, {a.package}, {a.what}".replace(" ", "_")
)


@each
def test_agrees(a: Agreement) -> None:
    assert sides_of(a).difference() <= a.bound


@pytest.mark.slow
@each
def test_a_changed_encoding_would_be_noticed(a: Agreement) -> None:
    """Positions twice as far apart, and each parameter half as large again; then as before."""
    sides = sides_of(a)
    differences = dict(sides.changed())
    assert differences
    assert not [name for name, d in differences.items() if not d > max(VISIBLE, a.bound)]
    assert sides.difference() <= a.bound


def test_every_entry_of_the_table_is_another() -> None:
    assert len({(a.encoding, a.package, a.what) for a in AGREEMENTS}) == len(AGREEMENTS)


def off_by(much: float, bound: float, package: str = "torch") -> Agreement:
    e = Absolute(dims())

    def sides() -> Sides:
        return Sides([e], lambda: embedded(e, 3), embedded(e, 3) + much)

    return Agreement("absolute", package, "vectors", sides, bound)


def test_table_tells_of_broken_bounds() -> None:
    row = f"| `absolute` | torch {torch.__version__} | vectors | float32 |"
    good, bad = off_by(0, 0), off_by(0.5, 0.25)
    assert table([good])[0].splitlines()[2:] == [f"{row} 0 | 0 |"] and table([good])[1]
    assert table([bad, good])[0].splitlines()[2] == f"{row} 5.0e-01 | 0.25 |"
    assert not table([bad, good])[1] and not table([off_by(torch.nan, 1)])[1]


def test_table_leaves_out_what_is_not_installed() -> None:
    text, agree = table([off_by(1, 0, "no-such-package-of-the-tests")])
    assert "| not installed |" in text and agree


def test_shapes_must_be_equal() -> None:
    e = Absolute(dims())
    with pytest.raises(ValueError, match=r"ours is \[3, 8\], theirs \[8\]"):
        Sides([e], lambda: embedded(e, 3), embedded(e, 3)[0]).difference()
