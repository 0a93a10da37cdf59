"""From the name of an encoding to its class: modules of this package, and installed plug-ins."""

import pkgutil
from importlib import import_module
from importlib.util import find_spec

import nmt.encodings as package
from nmt.encodings.base import Encoding
from nmt.encodings.options import nearest
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
        raise ValueError(f"no encoding is called {name!r}{nearest(name, names())}")
    if len(classes) > 1:
        several = ", ".join(c.__name__ for c in classes)
        raise ValueError(
            f"{package.__name__}.{name} has several classes of encodings: {several}; "
            "give each a file"
        )
    return classes[0]


def names() -> list[str]:
    """All encodings that `use:` may name, sorted."""
    built_in = [m.name for m in pkgutil.iter_modules(package.__path__) if _classes(m.name)]
    return sorted({*built_in, *offered(ENCODING)})


def _classes(name: str) -> list[type[Encoding]]:
    """The encodings that the module of this name itself defines, each once."""
    full = f"{package.__name__}.{name}"
    if not name.isidentifier() or find_spec(full) is None:
        return []
    members = vars(import_module(full)).values()
    classes = {c for c in members if fits(ENCODING, c) and c.__module__ == full}
    return sorted(classes, key=lambda c: c.__name__)
