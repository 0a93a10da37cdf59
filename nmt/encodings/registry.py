"""From names in a config to encodings: modules in the folders here, and installed plug-ins."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any

import nmt.encodings as package
from nmt.config import check
from nmt.encodings import positions, positions_columns
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Positions
from nmt.encodings.site import check_layers, restrict
from nmt.errors import PLUGIN_ERRORS, UserError, where_raised

SITES = ("encoder", "decoder", "cross")
COMMON = ("use", "where", "at", "layers")  # options of every entry
POSITIONS: dict[str, type[Positions]] = {
    "index": positions.Index,
    "shift": positions.Shift,
    "augment": positions.Augment,
    "sample": positions.Sample,
    "pose": positions.PoSE,
    "remaining": positions.Remaining,
    "column": positions_columns.ColumnPositions,
    "segment": positions_columns.Segment,
    "depth": positions_columns.Depth,
    "tree": positions_columns.Tree,
    "graph": positions_columns.Graph,
}


def create(entries: dict[str, dict[str, Any]], dims: Dims) -> list[Encoding]:
    """Make the encodings of one site, in the config's order.

    Raises ValueError, starting with the entry's name, for unknown names, sites and options, and
    for values that the encoding refuses.
    """
    encodings = []
    for name, options in entries.items():
        try:
            use = options.get("use", name)  # a name, or a class
            cls = use if isinstance(use, type) else find(str(use))
            if dims.site in _read_sites(options.get("where", ["encoder", "decoder"])):
                encodings.append(_make(name, cls, options, dims))
        except UserError as error:  # of a value, which it names
            raise ValueError(str(error)) from None
        except ValueError as error:
            raise ValueError(f"encoding.{name}: {error}") from None
    return encodings


def find(name: str) -> type[Encoding]:
    """The class of an encoding.

    Raises ValueError for a name that nothing has (it says what is near), that several offer, or
    whose plug-in cannot be loaded.
    """
    classes = _classes(name)
    if len(classes) > 1:
        several = ", ".join(c.__name__ for c in classes)
        raise ValueError(
            f"{_modules()[name]} has several classes of encodings: {several}; give each a file"
        )
    return _find("encodings", Encoding, name, classes, names)


def names() -> list[str]:
    """All encodings that `use:` may name, sorted."""
    return sorted({*filter(_classes, _modules()), *_entry_points("encodings").names})


def position_class(name: str) -> type[Positions]:
    """The class of a name in POSITIONS, or the one that an installed plug-in offers.

    Raises ValueError as `find` does.
    """
    built_in = [POSITIONS[name]] if name in POSITIONS else []
    choices = [*POSITIONS, *_entry_points("positions").names]
    cls = _find("positions", Positions, name, built_in, lambda: choices)
    if not getattr(vars(cls).get("__dataclass_params__"), "frozen", False):
        raise ValueError(f"{cls.__module__}:{cls.__name__} is no frozen dataclass")
    return cls


def options_of(cls: type[Encoding] | type[Positions]) -> dict[str, Any]:
    """The options of a constructor, and their types with bounds."""
    return {name: key.kind for name, key in check.keys_of(cls).items() if name != "dims"}


def _make(name: str, cls: type[Encoding], options: dict[str, Any], dims: Dims) -> Encoding:
    if taken := options_of(cls).keys() & {*COMMON}:
        raise ValueError(f"its option {min(taken)!r} has the name of a key that every entry has")
    constructor_options = {k: v for k, v in options.items() if k not in COMMON}
    arguments = _check_options(cls, constructor_options, f"encoding.{name}")
    at, chosen = _make_positions(options.get("at", "index"), f"encoding.{name}.at")
    served = restrict(dims, options.get("layers"))
    try:
        encoding = cls(replace(served, positions=chosen), **arguments)
    except KeyError as e:
        # torch refuses a parameter or a buffer with the name of an attribute that is there already
        found = re.search(r"attribute '(\w+)' already exists", str(e))
        if not found or not hasattr(Encoding(dims), found[1]):
            raise
        raise ValueError(f"{found[0]} in the base class Encoding; choose another name") from None
    # torch lets a plain attribute hide a method of the same name, and a method hide a module
    attributes = [*vars(encoding), *encoding._modules, *encoding._parameters]
    if wrong := [a for a in attributes if callable(vars(Encoding).get(a))]:
        raise ValueError(f"attribute {wrong[0]!r} has the name of a method of Encoding; rename it")
    _check_positions(encoding, at)
    check_layers(encoding)
    encoding.name = name
    return encoding


def _read_sites(where: Any) -> list[str]:
    sites = [where] if isinstance(where, str) else where
    if not isinstance(sites, Sequence):
        raise ValueError(f"where={where}: choose some of {', '.join(SITES)}, as in where=[encoder]")
    if wrong := [s for s in sites if s not in SITES]:
        raise ValueError(f"where={wrong[0]}: choose among {', '.join(SITES)}")
    return list(sites)


def _check_options(
    cls: type[Encoding] | type[Positions], options: dict[str, Any], entry: str
) -> dict[str, Any]:
    """The options as `check.arguments` returns them; ValueError for one without a type."""
    typed = options_of(cls).keys() | {"dims"}
    for name in inspect.signature(cls).parameters.keys() & options.keys() - typed:
        raise ValueError(f"{name}: has no type in __init__; write {name}: float, or int, bool, str")
    also = COMMON if issubclass(cls, Encoding) else ()
    return check.arguments(cls, options, entry, ("dims",), also)


def _make_positions(at: Any, entry: str) -> tuple[str, Positions]:
    """The name of positions in `at`, and the positions with their options."""
    chosen = at if isinstance(at, dict) else {at: {}} if isinstance(at, str) else {}
    name, options = next(iter(chosen.items()), (None, None))
    options = {} if options is None else options
    if len(chosen) != 1 or not isinstance(name, str) or not isinstance(options, dict):
        raise ValueError(f"at={at}: expected one name with its options, as {{index: {{start: 1}}}}")
    try:
        cls = position_class(name)
    except ValueError as e:
        raise ValueError(f"at={name}: {e}") from None
    return name, cls(**_check_options(cls, options, f"{entry}.{name}"))


def _check_positions(encoding: Encoding, name: str) -> None:
    """Refuse positions of that name which the encoding cannot read, or the site does not have."""
    chosen, site = encoding.positions, encoding.dims.site
    if encoding.position_type == "none" and chosen != positions.Index():
        raise ValueError(f"at={name}: this encoding never looks at positions")
    if encoding.position_type == "integer" and not chosen.integer:
        raise ValueError(f"at={name}: this encoding indexes a table and needs whole positions")
    if chosen.distances_only and not encoding.distances_only:
        raise ValueError(f"at={name}: this encoding needs a position for every single token")
    if site == "cross" and {*encoding.hooks} <= {"embed", "layer_input", "readout"}:
        raise ValueError("where=cross: this encoding works on embeddings, not on attention")
    if site not in chosen.sites:
        only = ",".join(chosen.sites)
        raise ValueError(f"at={name}: not for where={site}; give where=[{only}]")


def _modules() -> dict[str, str]:
    """The full names of the modules in the folders of this package, by their last names."""
    # by default a folder that raises ImportError is left out; to import it again raises it again
    below = pkgutil.walk_packages(package.__path__, f"{package.__name__}.", import_module)
    return {m.name.rpartition(".")[2]: m.name for m in below if m.name.count(".") > 2}


def _classes(name: str) -> list[type[Encoding]]:
    """The encodings that the module of this name itself defines, each once."""
    full = _modules().get(name)
    if full is None:
        return []
    members = vars(import_module(full)).values()
    classes = {c for c in members if _derives(c, Encoding) and c.__module__ == full}
    return sorted(classes, key=lambda c: c.__name__)


def _derives(loaded: object, base: type) -> bool:
    return inspect.isclass(loaded) and issubclass(loaded, base) and loaded is not base


def _find(
    kind: str, base: type, name: str, built_in: Sequence[type], choices: Callable[[], list[str]]
) -> Any:
    """The class of a name, built in or derived from `base` and offered by a distribution.

    Raises ValueError where none or several have the name, and where the class cannot be loaded.
    """
    points = [*_entry_points(kind).select(name=name)]
    offering = " and ".join(sorted(f"the distribution {p.dist.name}" for p in points if p.dist))
    if len(points) + len(built_in) > 1:
        offering = f"nmt and {offering}" if built_in else offering
        raise ValueError(f"{offering} offer {name}; let an entry point have another name")
    if built_in:
        return built_in[0]
    if not points:
        near = check.suggest(name, choices())
        raise ValueError(f"no {kind} are called {name!r}{near}")
    source = f"{offering} ({points[0].value})"
    try:
        loaded = points[0].load()
    except PLUGIN_ERRORS as e:  # while the module is imported
        why = where_raised(e)
        raise ValueError(f"{source} cannot be imported: {why}; mend it, or uninstall it") from None
    if not _derives(loaded, base):
        raise ValueError(
            f"{source} is no class derived from {base.__module__}.{base.__name__}; its entry point "
            "must be package.module:Class"
        )
    return loaded


def _entry_points(kind: str) -> EntryPoints:
    """What installed distributions offer in the group nmt.encodings or nmt.positions."""
    return _read_entry_points(f"nmt.{kind}", tuple(sys.path))


@cache
def _read_entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points along a path; to read all metadata takes a twentieth of a second."""
    return entry_points(group=group)
