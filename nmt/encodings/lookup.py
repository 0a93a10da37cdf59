"""From the name of an encoding to its class: modules in the folders here, and plug-ins."""

import pkgutil
from importlib import import_module

import nmt.encodings as package
from nmt.config.check import near
from nmt.encodings.base import Encoding
from nmt.encodings.plug_ins import ENCODING, fits, offered, plug_in


def find(name: str) -> type[Encoding]:
    """The class of an encoding.

    Raises ValueError for a name that nothing has (it says what is near), that several offer, or
    whose plug-in cannot be loaded.
    """
    classes = _classes(name)
    if (cls := plug_in(ENCODING, name, bool(classes))) is not None:
        return cls
    if not classes:
        raise ValueError(f"no encoding is called {name!r}{near(name, names())}")
    if len(classes) > 1:
        several = ", ".join(c.__name__ for c in classes)
        raise ValueError(
            f"{_modules()[name]} has several classes of encodings: {several}; give each a file"
        )
    return classes[0]


def names() -> list[str]:
    """All encodings that `use:` may name, sorted."""
    return sorted({*filter(_classes, _modules()), *offered(ENCODING)})


def _modules() -> dict[str, str]:
    """The full names of the modules in the folders of this package, by their own."""
    modules: dict[str, str] = {}
    for folder in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if folder.ispkg:
            inside = pkgutil.iter_modules(import_module(folder.name).__path__)
            modules |= {module.name: f"{folder.name}.{module.name}" for module in inside}
    return modules


def _classes(name: str) -> list[type[Encoding]]:
    """The encodings that the module of this name itself defines, each once."""
    full = _modules().get(name)
    if full is None:
        return []
    members = vars(import_module(full)).values()
    classes = {c for c in members if fits(ENCODING, c) and c.__module__ == full}
    return sorted(classes, key=lambda c: c.__name__)
