"""Options of encodings and of positions: their types, choices and bounds, and the one check."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Bound:
    """The least value of a number, or what it must exceed."""

    number: float
    included: bool = True

    def __str__(self) -> str:
        return f"{'at least' if self.included else 'above'} {self.number:g}"

    def holds(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value >= self.number if self.included else value > self.number


PositiveInt = Annotated[int, Bound(1)]
NonNegativeInt = Annotated[int, Bound(0)]
PositiveFloat = Annotated[float, Bound(0, included=False)]
NonNegativeFloat = Annotated[float, Bound(0)]


def check(
    options: Mapping[str, Any], kinds: Mapping[str, Any], also: Iterable[str] = (), where: str = ""
) -> dict[str, Any]:
    """The options, with floats where a whole number stands for one.

    Raises ValueError for the first option that is unknown, or whose value does not fit.
    `kinds`: the type of each option, as `get_type_hints(..., include_extras=True)` has them.
    `also`: further names that a misspelling may have meant. `where`: the key above the options.
    """
    checked = dict(options)
    for key, value in options.items():
        if key not in kinds:
            place = f"{where}: " if where else ""
            raise ValueError(f"{place}no option {key!r}{nearest(key, [*kinds, *also])}")
        if (expected := _unmet(value, kinds[key])) is not None:
            place = f"{where}." if where else ""
            raise ValueError(f"{place}{key}={value}: {expected}")
        if _bare(kinds[key])[0] is float and value is not None:
            checked[key] = float(value)
    return checked


def _unmet(value: Any, kind: Any) -> str | None:
    """The requirement that a value does not meet, or None."""
    if value is None and NoneType in get_args(kind):
        return None
    kind, *bounds = _bare(kind)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        fits = value in choices and not isinstance(value, bool)
        return None if fits else f"choose one of {', '.join(map(str, choices))}"
    of_items = get_origin(kind) not in (None, Union, UnionType)  # as list[int]
    accepted = (int, float) if kind is float else get_origin(kind) if of_items else kind
    if not isinstance(value, accepted) or isinstance(value, bool) is not (kind is bool):
        text = f", not the text {value!r}" if isinstance(value, str) else ""
        return f"expected {getattr(kind, '__name__', str(kind))}{text}"
    if kind is float and not math.isfinite(value):
        return "expected a finite number"
    return next((f"must be {bound}" for bound in bounds if not bound.holds(value)), None)


def _bare(kind: Any) -> tuple[Any, ...]:
    """A type without `| None`, and the bounds of its numbers."""
    if NoneType in (kinds := get_args(kind)):
        (kind,) = (k for k in kinds if k is not NoneType)
    return get_args(kind) if get_origin(kind) is Annotated else (kind,)


def nearest(name: str, known: list[str]) -> str:
    """'; did you mean X?' if something is close, else '; known are ...'."""
    if close := get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(sorted(known))}"
