"""From the entries of a config to encodings: their options, sites and positions are checked."""

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pkgutil import resolve_name
from typing import Any

from nmt.config import check
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.composition import check_layers, restricted
from nmt.encodings.context import Positions
from nmt.encodings.lookup import find
from nmt.encodings.plug_ins import POSITION, offered, plug_in
from nmt.encodings.positions import START
from nmt.errors import UserError

SITES = ("encoder", "decoder", "cross")
COMMON = ("use", "where", "at", "layers")  # options of every entry
POSITIONS = {
    "index": "positions:Index",
    "shift": "positions_random:Shift",
    "augment": "positions_random:Augment",
    "sample": "positions_sampled:Sample",
    "pose": "positions_random:PoSE",
    "remaining": "positions_remaining:Remaining",
    "column": "positions_columns:ColumnPositions",
    "segment": "positions_columns:Segment",
    "depth": "positions_columns:Depth",
    "tree": "positions_columns:Tree",
    "graph": "positions_columns:Graph",
}  # name in `at:` -> module in this folder, and class


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
            if dims.site in _sites(options.get("where", ["encoder", "decoder"])):
                encodings.append(_make(name, cls, options, dims))
        except UserError as e:  # of a value, which it names
            raise ValueError(str(e)) from None
        except ValueError as e:
            raise ValueError(f"encoding.{name}: {e}") from None
    return encodings


def _sites(where: Any) -> list[str]:
    sites = [where] if isinstance(where, str) else where
    if not isinstance(sites, Sequence):
        raise ValueError(f"where={where}: choose some of {', '.join(SITES)}, as in where=[encoder]")
    if wrong := [s for s in sites if s not in SITES]:
        raise ValueError(f"where={wrong[0]}: choose among {', '.join(SITES)}")
    return list(sites)


def _make(name: str, cls: type[Encoding], options: dict[str, Any], dims: Dims) -> Encoding:
    if taken := options_of(cls).keys() & {*COMMON}:
        raise ValueError(f"its option {min(taken)!r} has the name of a key that every entry has")
    own_options = {k: v for k, v in options.items() if k not in COMMON}
    arguments = _checked(cls, own_options, f"encoding.{name}")
    at, positions = _positions(options.get("at", "index"), f"encoding.{name}.at")
    _check_positions(cls, at, positions, dims.site)
    served = restricted(dims, options.get("layers"))
    encoding = cls(replace(served, positions=positions), **arguments)
    check_layers(encoding)
    encoding.name = name
    return encoding


def _check_positions(cls: type[Encoding], name: str, positions: Positions, site: str) -> None:
    """Refuse positions of that name which the encoding cannot read, or the site does not have."""
    if cls.position_type == "none" and positions != START:
        raise ValueError(f"at={name}: this encoding never looks at positions")
    if cls.position_type == "integer" and not positions.integer:
        raise ValueError(f"at={name}: this encoding indexes a table and needs whole positions")
    if positions.distances_only and not cls.distances_only:
        raise ValueError(f"at={name}: this encoding needs a position for every single token")
    if site == "cross" and {*cls.hooks} <= {"embed", "layer", "readout"}:
        raise ValueError("where=cross: this encoding works on embeddings, not on attention")
    if site not in positions.sites:
        only = ",".join(positions.sites)
        raise ValueError(f"at={name}: not for where={site}; give where=[{only}]")


def options_of(cls: type[Encoding] | type[Positions]) -> dict[str, Any]:
    """The options of a constructor, and their types with bounds."""
    keys = check.keys_of(cls)
    return {name: key.kind for name, key in keys.items() if name != "dims"}


def _checked(
    cls: type[Encoding] | type[Positions], options: dict[str, Any], where: str
) -> dict[str, Any]:
    """The options as `check.arguments` returns them; ValueError for one without a type."""
    known = options_of(cls)
    for name in signature(cls).parameters.keys() & options.keys() - known.keys() - {"dims"}:
        raise ValueError(f"{name}: has no type in __init__; write {name}: float, or int, bool, str")
    also = COMMON if issubclass(cls, Encoding) else ()
    return check.arguments(cls, options, where, ("dims",), also)


def _positions(at: Any, where: str) -> tuple[str, Positions]:
    """The name of positions in `at`, and the positions with their options."""
    names = at if isinstance(at, dict) else {at: {}} if isinstance(at, str) else {}
    name, options = next(iter(names.items()), (None, None))
    options = {} if options is None else options
    if len(names) != 1 or not isinstance(name, str) or not isinstance(options, dict):
        raise ValueError(f"at={at}: expected one name with its options, as {{index: {{start: 1}}}}")
    try:
        cls = position_class(name)
    except ValueError as e:
        raise ValueError(f"at={name}: {e}") from None
    return name, cls(**_checked(cls, options, f"{where}.{name}"))


def position_class(name: str) -> type[Positions]:
    """The class of a name in POSITIONS, or the one that an installed plug-in offers.

    Its module is imported only where a config has the name. Raises ValueError as `lookup.find`.
    """
    if (cls := plug_in(POSITION, name, name in POSITIONS)) is not None:
        return cls
    if name not in POSITIONS:
        known = check.near(name, [*POSITIONS, *offered(POSITION)])
        raise ValueError(f"no positions are called {name!r}{known}")
    return resolve_name(f"nmt.encodings.{POSITIONS[name]}")
