"""Classes that installed distributions offer, by entry points: encodings, and positions."""

import inspect
import sys
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from nmt.encodings.base import Encoding
from nmt.encodings.context import Positions


class Kind(NamedTuple):
    """What a plug-in may offer, by an entry point name = "package.module:Class" of a group."""

    group: str
    noun: str
    base: type
    frozen: bool = False  # a class must be a frozen dataclass: its fields are the options


ENCODING = Kind("nmt.encodings", "an encoding", Encoding)
POSITION = Kind("nmt.positions", "positions", Positions, frozen=True)


def plug_in(kind: Kind, name: str, built_in: bool) -> Any:
    """The class derived from kind.base that a distribution offers under a name; None if none does.

    Raises ValueError where the name is `built_in` as well, where several distributions offer it,
    and where the class cannot be loaded.
    """
    points = [point for point in _plug_ins(kind) if point.name == name]
    if built_in and points:
        raise ValueError(
            f"{_distribution(points[0])} offers {kind.noun} of this name, which is built in; "
            "let its entry point have another name, or uninstall it"
        )
    if len(points) > 1:
        both = " and ".join(sorted(map(_distribution, points)))
        raise ValueError(f"{both} offer {kind.noun} of this name; uninstall one")
    return _loaded(kind, points[0]) if points else None


def offered(kind: Kind) -> list[str]:
    """The names of one kind for which a distribution is installed."""
    return [point.name for point in _plug_ins(kind)]


def fits(kind: Kind, loaded: object) -> bool:
    """Whether it is a class of that kind, and not the base itself."""
    if not inspect.isclass(loaded) or not issubclass(loaded, kind.base) or loaded is kind.base:
        return False
    own = vars(loaded).get("__dataclass_params__")  # by the decorator, not inherited
    return not kind.frozen or bool(getattr(own, "frozen", False))


def _plug_ins(kind: Kind) -> list[EntryPoint]:
    return list(_installed(tuple(sys.path)).select(group=kind.group))


@cache
def _installed(path: tuple[str, ...]) -> Any:
    """All entry points along a path; to read all metadata takes a twentieth of a second."""
    return entry_points()


def _loaded(kind: Kind, point: EntryPoint) -> Any:
    """The class that an installed distribution offers; raises ValueError that names it."""
    where = f"{_distribution(point)} ({point.value})"
    try:
        loaded = point.load()
    except Exception as e:  # anything that the module raises while it is imported
        frame = traceback.extract_tb(e.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        raise ValueError(
            f"{where} cannot be imported: {type(e).__name__} at {place}: "
            f"{' '.join(str(e).split())}; mend it, or uninstall it"
        ) from None
    if not fits(kind, loaded):
        raise ValueError(
            f"{where} is no {'frozen data' if kind.frozen else ''}class derived from "
            f"{kind.base.__module__}.{kind.base.__name__}; "
            "its entry point must be package.module:Class"
        )
    return loaded


def _distribution(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name}" if point.dist else point.value
