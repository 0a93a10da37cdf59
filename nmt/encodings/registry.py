"""From the entries of a config to encodings: their options, sites and positions are checked."""

from dataclasses import fields
from types import UnionType
from typing import Any, cast, get_args, get_type_hints

from nmt.encodings.at import POSITIONS
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Positions
from nmt.encodings.lookup import find, nearest

SITES = ("encoder", "decoder", "cross")
COMMON = ("use", "where", "at")  # options of every entry


def create(entries: dict[str, dict[str, Any]], dims: Dims) -> list[Encoding]:
    """Make the encodings of one site, in the config's order.

    Raises ValueError, starting with the entry's name, for unknown names, sites and options, and
    for values that the encoding refuses.
    """
    made = []
    for name, options in entries.items():
        try:
            use = options.get("use", name)  # a class may stand for its name
            cls = use if isinstance(use, type) else find(str(use))
            if dims.site in _sites(options.get("where", ["encoder", "decoder"])):
                made.append(_make(cls, options, dims))
                made[-1].name = name
        except ValueError as e:
            raise ValueError(f"encoding.{name}: {e}") from None
    return made


def _sites(where: Any) -> list[str]:
    sites = [where] if isinstance(where, str) else list(where)
    if wrong := [s for s in sites if s not in SITES]:
        raise ValueError(f"where={wrong[0]}: choose among {', '.join(SITES)}")
    return sites


def _make(cls: type[Encoding], options: dict[str, Any], dims: Dims) -> Encoding:
    known = options_of(cls)
    given = {k: v for k, v in options.items() if k not in COMMON}
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"no option {key!r}{nearest(key, [*known, *COMMON])}")
        if not _fits(value, known[key]):
            kind = getattr(known[key], "__name__", str(known[key]))
            raise ValueError(f"{key}={value}: expected {kind}")
    positions = _positions(options.get("at", {"index": {}}))
    _suit(cls, positions, dims.site)
    return cls(dims, positions, **given)


def _suit(cls: type[Encoding], positions: Positions, site: str) -> None:
    """Refuse positions that the encoding cannot read, or that the site does not have."""
    name = next(n for n, c in POSITIONS.items() if type(positions) is c)
    if cls.takes == "nothing" and name != "index":
        raise ValueError(f"at={name}: this encoding never looks at positions")
    if cls.takes == "integers" and not positions.integer:
        raise ValueError(f"at={name}: this encoding indexes a table and needs whole positions")
    if positions.pairs and not cls.pairwise:
        raise ValueError(f"at={name}: this encoding needs a position for every single token")
    hooks = ("project", "scores", "bias", "normalise", "values")  # those of attention
    if site == "cross" and all(getattr(cls, h) is getattr(Encoding, h) for h in hooks):
        raise ValueError("where=cross: this encoding works on embeddings, not on attention")
    if site not in positions.sites:
        only = ",".join(positions.sites)
        raise ValueError(f"at={name}: not for where={site}; give where=[{only}]")


def options_of(cls: type[Encoding]) -> dict[str, Any]:
    """The options of an encoding's constructor and their types."""
    hints = get_type_hints(cls.__init__)
    return {k: t for k, t in hints.items() if k not in ("dims", "positions", "return")}


def _fits(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    return isinstance(value, kind)


def _positions(at: Any) -> Positions:
    if isinstance(at, dict) and len(at) != 1:
        raise ValueError(f"at={at}: expected one name with its options, as {{index: {{start: 1}}}}")
    name, options = (at, {}) if isinstance(at, str) else next(iter(dict(at).items()))
    if name not in POSITIONS:
        raise ValueError(f"at={name}: choose one of {', '.join(POSITIONS)}")
    hints = get_type_hints(POSITIONS[name])
    known = {f.name: hints[f.name] for f in fields(cast(Any, POSITIONS[name]))}
    for key, value in (options or {}).items():
        if key not in known:
            raise ValueError(f"at.{name}: no option {key!r}{nearest(key, list(known))}")
        if not _fits(value, known[key]):
            raise ValueError(f"at.{name}.{key}={value}: expected {known[key].__name__}")
    return POSITIONS[name](**(options or {}))
