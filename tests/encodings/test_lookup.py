"""Which class a name stands for: a module's own, a plug-in's, or a refusal that names them.

Plug-ins offer encodings, and positions.
"""

import os
import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from nmt.encodings import biases
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Positions
from nmt.encodings.registry import create, names
from tests.plug_ins import install

DIMS = Dims("encoder", 1, 2, 8, 4)
HEAD = "from nmt.encodings.base import Encoding\n"
MINE = HEAD + "class Mine(Encoding):\n    pass\n"
THEIRS = """from dataclasses import dataclass
from nmt.encodings.context import Positions
from nmt.config.check import PositiveInt

@dataclass(frozen=True)
class Theirs(Positions):
    every: PositiveInt = 2

    def assign(self, index, context):
        return index * self.every
"""

Define = Callable[[str, str], None]


def made(name: str) -> Encoding:
    return create({name: {}}, DIMS)[0]


def refusal(name: str) -> str:
    with pytest.raises(ValueError) as e:
        made(name)
    assert "\n" not in str(e.value)
    return str(e.value)


@pytest.fixture
def define(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Define]:
    """Put a module of this source next to those of nmt/encodings/biases."""
    folder = tmp_path / "encodings"
    folder.mkdir()
    monkeypatch.setattr(biases, "__path__", [*biases.__path__, str(folder)])
    defined: list[str] = []

    def write(name: str, classes: str) -> None:
        (folder / f"{name}.py").write_text(HEAD + classes, encoding="utf-8")
        invalidate_caches()
        defined.append(name)

    yield write
    for name in defined:
        sys.modules.pop(f"nmt.encodings.biases.{name}", None)
        vars(biases).pop(name, None)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of sys.path into which distributions may be installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_module_that_is_added_later_is_found(define: Define) -> None:
    os.utime(biases.__path__[-1], ns=(1, 1))  # the folder has not changed for long
    assert "late" not in names()
    define("late", "class Late(Encoding):\n    pass\n")
    assert "late" in names() and type(made("late")).__name__ == "Late"


def test_a_module_stands_for_its_class_if_it_has_one(define: Define) -> None:
    define("other", "from nmt.encodings.biases.alibi import Alibi\nclass Other(Alibi): pass")
    assert type(made("other")).__name__ == "Other"
    define("my_bias", "class A(Encoding): pass\nclass MyBias(A): pass")
    assert refusal("my_bias") == (
        "encoding.my_bias: nmt.encodings.biases.my_bias has several classes of encodings: "
        "A, MyBias; give each a file"
    )


def test_an_attribute_that_has_the_name_of_a_method_is_refused(define: Define) -> None:
    for name, value in (("number", "0.5"), ("parameter", "nn.Parameter(torch.zeros(1))")):
        init = f"super().__init__(dims); self.bias = {value}"
        lines = ("import torch; from torch import nn", "class Own(Encoding):")
        define(name, "\n".join([*lines, f"    def __init__(self, dims): {init}"]))
        assert refusal(name).startswith(f"encoding.{name}: attribute 'bias' ")


def test_a_plug_in_is_an_encoding_like_others(site: Path) -> None:
    install(site, "mine-encodings", "theirs", "mine_encodings:Mine", MINE)
    assert type(made("theirs")).__name__ == "Mine"
    assert refusal("theirz").endswith("; did you mean theirs?")


def test_a_plug_in_with_a_name_that_is_taken_is_refused(site: Path) -> None:
    install(site, "mine-encodings", "relative", "mine_encodings:Mine", MINE)
    for distribution in ("mine-encodings", "yours"):
        install(site, distribution, "theirs", f"{distribution.replace('-', '_')}:Mine", MINE)
    assert refusal("relative").startswith(
        "encoding.relative: nmt and the distribution mine-encodings offer relative; "
    )
    assert made("rotary")  # others are not touched
    assert refusal("theirs").startswith(
        "encoding.theirs: the distribution mine-encodings and the distribution yours offer theirs; "
    )


@pytest.mark.parametrize(
    "value, source, expected",
    [
        ("mine_encodings:Yours", MINE, "cannot be imported: AttributeError at"),
        ("mine_encodings:Mine", "\n1 / 0", "ZeroDivisionError at mine_encodings.py:2: division"),
        ("mine_encodings:Mine", "import sys; sys.exit(2)", "SystemExit at mine_encodings.py:1: 2"),
        ("mine_encodings:Encoding", HEAD, "is no class derived from"),
    ],
)
def test_a_plug_in_that_is_no_encoding_is_named(
    value: str, source: str, expected: str, site: Path
) -> None:
    install(site, "mine-encodings", "theirs", value, source)
    message = refusal("theirs")
    assert message.startswith(f"encoding.theirs: the distribution mine-encodings ({value}) ")
    assert expected in message


def positions(at: object) -> Positions:
    return create({"absolute": {"at": at}}, DIMS)[0].positions


def at_refusal(at: object) -> str:
    with pytest.raises(ValueError) as e:
        positions(at)
    assert "\n" not in str(e.value)
    return str(e.value)


def offer(site: Path, name: str, source: str = THEIRS, distribution: str = "of-theirs") -> None:
    module = distribution.replace("-", "_")
    install(site, distribution, name, f"{module}:Theirs", source, "nmt.positions")


def test_positions_of_a_plug_in_are_like_others(site: Path) -> None:
    offer(site, "theirs")
    offer(site, "shift")
    assert positions("theirs") == positions({"theirs": {"every": 2}})
    assert positions({"theirs": {"every": 3}}) != positions("theirs")
    assert at_refusal("theirz").endswith(
        "at=theirz: no positions are called 'theirz'; did you mean theirs?"
    )
    assert "nmt and the distribution of-theirs offer shift; " in at_refusal("shift")
    assert at_refusal({"theirs": {"every": 0}}).endswith("theirs.every=0: must be at least 1")


@pytest.mark.parametrize(
    "source, expected",
    [
        ("Theirs = 3", "is no class derived from nmt.encodings.context.Positions; its"),
        (THEIRS.replace("(frozen=True)", ""), "is no frozen dataclass"),
    ],
)
def test_a_plug_in_that_offers_no_positions_is_named(
    source: str, expected: str, site: Path
) -> None:
    offer(site, "theirs", source)
    message = at_refusal("theirs")
    assert message.startswith("encoding.absolute: at=theirs: ") and expected in message
    assert "of_theirs:Theirs" in message
