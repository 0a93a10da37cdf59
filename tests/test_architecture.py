"""docs/architecture.md says what the code is: its map, its walks, and every name in it."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT, rooms, text_of
from tests.test_house import BASE, FILES, imports_of, module_of, room_of

PAGE = text_of("docs/architecture.md")
TOPS = {path.stem for path in (ROOT / "nmt").iterdir()} - {"__init__", "__pycache__"}
WALKS = [
    "From an override to a gradient step",
    "From a line of text to its batch",
    "From a line to its translation",
    "From systems to a report",
    "From the name of an encoding to its checks",
    "From a model to another engine",
]


def named(text: str) -> list[str]:
    """What a text names of the package, as `model.layers.Stack.forward`."""
    found = re.findall(r"`((?:\w+\.)+\w+)`", text)
    return [name for name in found if name.split(".")[0] in TOPS and name.split(".")[-1] != "py"]


def resolved(name: str) -> tuple[Any, Any]:
    """The module and the object of a name; raises if there is none."""
    parts = ["nmt", *name.split(".")]
    place = len(parts)
    while not _is_module(parts[:place]):
        place -= 1
    module: Any = import_module(".".join(parts[:place]))
    here = module
    for part in parts[place:]:
        here = getattr(here, part)
    return module, here


def _is_module(parts: list[str]) -> bool:
    path = ROOT.joinpath(*parts)
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize("name", sorted(set(named(PAGE))))
def test_every_name_is_there(name: str) -> None:
    assert resolved(name)[1] is not None


def test_every_room_stands_on_the_map_with_the_imports_it_has() -> None:
    used: dict[str, set[str]] = {room: set() for room in rooms()}
    for path in FILES:
        here = room_of(module_of(path))
        used[here] |= {room_of(module) for module in imports_of(path) if module != "nmt"}
    used = {room: imported - {room} for room, imported in used.items()}
    folders = {path.name for path in (ROOT / "nmt").iterdir() if (path / "__init__.py").is_file()}
    assert folders - BASE <= set(rooms())
    for room in set(rooms()) - {"scripts"}:
        assert used[room] == rooms()[room], room


def steps(walk: str) -> list[str]:
    """The functions of a walk, in their order."""
    section = PAGE.partition(f"## {walk}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. ((?:`[\w.]+`,?\s*)+)", section, flags=re.M)
    assert len(items) > 5
    return [name for item in items for name in named(item)]


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_goes_down_and_each_step_is_called_by_an_earlier_one(walk: str) -> None:
    order = list(rooms())
    before: list[Path] = []
    for name in steps(walk):
        module, function = resolved(name)
        assert inspect.isfunction(function), name
        file = Path(module.__file__)
        if before:
            last, here = (room_of(module_of(path)) for path in (before[-1], file))
            assert order.index(last) <= order.index(here), f"{name}: a step back"
            if function.__name__ not in ("forward", "hidden"):
                texts = [path.read_text(encoding="utf-8") for path in before]
                called = (
                    rf"(?<!def ){function.__name__}\(|submit\w*\([\w., ]*\.{function.__name__}\b"
                )
                assert any(re.search(called, text) for text in texts), f"{name}: who calls it?"
        before.append(file)
