"""From the name of an encoding to its class: modules of this package, and installed plug-ins."""

import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import nmt.encodings as here
from nmt.encodings.base import Encoding
from nmt.encodings.options import nearest

GROUP = "nmt.encodings"  # entry points: name = "package.module:Class"

Dated = tuple[tuple[str, int], ...]
"""Folders, and when each last changed."""


def find(name: str) -> type[Encoding]:
    """The class of an encoding.

    Raises ValueError for a name that nothing has (it says what is near), that several offer, or
    that a plug-in cannot keep its word about.
    """
    built_in = _built_in(name)
    plug_ins = [point for point in _installed(_dated(sys.path)) if point.name == name]
    if built_in and plug_ins:
        raise ValueError(
            f"{_distribution(plug_ins[0])} offers an encoding of this name, which is built in; "
            "let its entry point have another name, or uninstall it"
        )
    if len(plug_ins) > 1:
        both = " and ".join(sorted(map(_distribution, plug_ins)))
        raise ValueError(f"{both} offer an encoding of this name; uninstall one")
    cls = _loaded(plug_ins[0]) if plug_ins else class_in(built_in) if built_in else None
    if cls is None:
        raise ValueError(f"no encoding is called {name!r}{nearest(name, names())}")
    return cls


def names() -> list[str]:
    """All encodings that `use:` may name, sorted."""
    built_in = [name for name in _modules(_dated(here.__path__)) if _built_in(name)]
    return sorted({*built_in, *(p.name for p in _installed(_dated(sys.path)))})


@cache
def _installed(path: Dated) -> tuple[EntryPoint, ...]:
    """The plug-ins that are installed along a path; reading all metadata takes a twentieth of a
    second, and every entry of every model asks."""
    return tuple(entry_points(group=GROUP))


@cache
def _modules(path: Dated) -> frozenset[str]:
    """The modules along a path; listing the folder takes as long as making a small encoding."""
    return frozenset(m.name for m in pkgutil.iter_modules([at for at, _ in path]))


def _dated(path: Iterable[str]) -> Dated:
    """Where Python looks for modules, and when each folder last changed."""
    return tuple((at, Path(at).stat().st_mtime_ns if Path(at).exists() else 0) for at in path)


def _built_in(name: str) -> ModuleType | None:
    """The module of this package that defines an encoding of this name."""
    if name not in _modules(_dated(here.__path__)):
        return None
    module = import_module(f"{here.__name__}.{name}")
    return module if _classes(module) else None


def class_in(module: ModuleType) -> type[Encoding]:
    """The encoding that a module stands for; others beside it are its bases or parts.

    It is the class that bears the module's name, without regard to case and underscores, or else
    the only one on which no other of the module builds. Raises ValueError that names the classes
    among which there is no such one.
    """
    classes = _classes(module)
    stem = module.__name__.rpartition(".")[2].replace("_", "")
    named = [c for c in classes if c.__name__.lower() == stem.lower()]
    ends = [c for c in classes if not any(issubclass(o, c) for o in classes if o is not c)]
    for candidates in (named, ends):
        if len(candidates) == 1:
            return candidates[0]
    several = ", ".join(c.__name__ for c in ends)
    raise ValueError(
        f"{module.__name__} has several classes of encodings: {several}; "
        "let one bear the module's name, or give each a file"
    )


def _classes(module: ModuleType) -> list[type[Encoding]]:
    """The encodings that a module itself defines, each once (base.py's seam does not count)."""
    return [
        c
        for c in dict.fromkeys(c for _, c in inspect.getmembers(module, inspect.isclass))
        if issubclass(c, Encoding) and c is not Encoding and c.__module__ == module.__name__
    ]


def _loaded(point: EntryPoint) -> type[Encoding]:
    """The class that an installed distribution offers; raises ValueError that names it."""
    where = f"{_distribution(point)} ({point.value})"
    try:
        loaded = point.load()
    except Exception as e:  # whatever somebody else's module raises while it is imported
        frame = traceback.extract_tb(e.__traceback__)[-1]
        text = " ".join(str(e).split())
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        raise ValueError(
            f"{where} cannot be imported: {type(e).__name__} at {place}: {text}; "
            "mend it, or uninstall it"
        ) from None
    if not (inspect.isclass(loaded) and issubclass(loaded, Encoding) and loaded is not Encoding):
        raise ValueError(
            f"{where} is no class derived from nmt.encodings.base.Encoding; "
            "its entry point must be package.module:Class"
        )
    return loaded


def _distribution(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name}" if point.dist else point.value
