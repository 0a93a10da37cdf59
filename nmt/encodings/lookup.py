"""From the name of an encoding to its class: modules of this package, and installed plug-ins."""

import inspect
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import nmt.encodings as package
from nmt.encodings.base import Encoding
from nmt.encodings.options import nearest
from nmt.encodings.plug_ins import ENCODING, fits, offered, plug_in


def find(name: str) -> type[Encoding]:
    """The class of an encoding.

    Raises ValueError for a name that nothing has (it says what is near), that several offer, or
    whose plug-in cannot be loaded.
    """
    module = _module(name)
    if (cls := plug_in(ENCODING, name, module is not None)) is not None:
        return cls
    if module is None:
        raise ValueError(f"no encoding is called {name!r}{nearest(name, names())}")
    return class_in(module)


def names() -> list[str]:
    """All encodings that `use:` may name, sorted."""
    built_in = [m.name for m in pkgutil.iter_modules(package.__path__) if _module(m.name)]
    return sorted({*built_in, *offered(ENCODING)})


def _module(name: str) -> ModuleType | None:
    """The module of this package that defines an encoding of this name."""
    full = f"{package.__name__}.{name}"
    if not name.isidentifier() or find_spec(full) is None:
        return None
    module = import_module(full)
    return module if _classes(module) else None


def class_in(module: ModuleType) -> type[Encoding]:
    """The encoding of a module; other classes in it are bases or parts.

    It is the class that bears the module's name, without regard to case and underscores, or else
    the only one on which no other of the module builds. Raises ValueError that names the classes
    among which there is no such one.
    """
    classes = _classes(module)
    stem = module.__name__.rpartition(".")[2].replace("_", "")
    named = [c for c in classes if c.__name__.lower() == stem.lower()]
    last = [c for c in classes if not any(issubclass(o, c) for o in classes if o is not c)]
    for candidates in (named, last):
        if len(candidates) == 1:
            return candidates[0]
    several = ", ".join(c.__name__ for c in last)
    raise ValueError(
        f"{module.__name__} has several classes of encodings: {several}; "
        "let one bear the module's name, or give each a file"
    )


def _classes(module: ModuleType) -> list[type[Encoding]]:
    """The encodings that a module itself defines, each once."""
    classes: list[Any] = [c for _, c in inspect.getmembers(module, inspect.isclass)]
    return [
        c for c in dict.fromkeys(classes) if fits(ENCODING, c) and c.__module__ == module.__name__
    ]
