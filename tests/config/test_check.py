"""The one check: types, choices and bounds of keys, of dataclasses and of constructors."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import check
from nmt.config.check import (
    MANDATORY,
    Between,
    Name,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    arguments,
    key,
    read,
)
from nmt.errors import UserError


@dataclass
class Inner:
    """Something below a key."""

    name: Name = key("x", "becomes a path")
    size: PositiveInt = key(MANDATORY, "has no default")


@dataclass
class Outer:
    """Keys of all types."""

    kind: Literal["near", "far"] = key("near", "which keys count")
    flag: bool = key(True, "a switch")
    text: str = key("a", "a text")
    near: NonNegativeInt = key(0, "a count", only=("near",))
    rest: NonNegativeInt = key(0, "a count", only=("far",))
    sizes: list[PositiveInt] = key([], "a list")
    inner: dict[str, Inner] = key({}, "by name")
    reach: Annotated[float, Between(0, 2)] | None = key(None, "a number, or none")


class Made:
    """A constructor, as those of encodings."""

    def __init__(
        self,
        dims: int,
        flag: bool = True,
        text: str = "",
        number: float = 0.0,
        count: PositiveInt = 1,
        factor: Annotated[float, Between(1)] = 1.0,
        step: PositiveFloat = 1.0,
        kind: Literal["near", "far"] = "near",
        method: Literal[1, 2] = 1,
        size: PositiveInt | None = None,
        share: PositiveFloat | None = None,
        sizes: list[int] | None = None,
    ) -> None: ...


def checked(option: str, value: object) -> Any:
    return arguments(Made, {option: value}, "here", idle=("dims",))[option]


FITTING: list[tuple[str, object]] = [
    *[("flag", True), ("text", "x"), ("number", 1), ("number", -0.5), ("count", 1)],
    *[("factor", 1), ("step", 1e-9), ("kind", "far"), ("method", 2)],
    *[("size", None), ("size", 3), ("sizes", [1, 2])],
]
WRONG: list[tuple[str, object]] = [
    *[("flag", 1), ("text", 1), ("text", False), ("number", "3"), ("number", True)],
    *[("number", float("nan")), ("number", float("inf")), ("number", 1e10), ("count", 0)],
    *[("count", 1.0), ("count", 2**31), ("factor", 0.5), ("step", 0.0), ("kind", "there")],
    *[("method", 3), ("method", True), ("size", 0), ("size", True), ("sizes", 3)],
    *[("sizes", ["a"]), ("cuont", 1), ("dims", 3)],
]


def test_what_fits_passes_and_what_does_not_is_named() -> None:
    for option, value in FITTING:
        assert checked(option, value) == value
    assert type(checked("number", 1)) is float and type(checked("count", 1)) is int
    for option, value in WRONG:
        with pytest.raises(UserError) as error:
            checked(option, value)
        assert str(error.value).startswith(f"here.{option}") and "\n" not in str(error.value)


def test_keys_below_keys_are_read_and_named() -> None:
    outer: Outer = read(Outer, {"inner": {"a": {"size": 3}}, "reach": 1})
    assert outer.inner["a"] == Inner("x", 3) and outer.reach == 1.0
    for values, named in (
        ({"inner": {"a": {}}}, "inner.a.size: has no value"),
        ({"inner": {"a": {"size": MANDATORY}}}, "inner.a.size: has no value"),
        (
            {"inner": {"a": {"size": 3, "nmae": "x"}}},
            "inner.a.nmae: no such key; did you mean name",
        ),
        ({"inner": 3}, "inner=3: expected names with values"),
        ({"reach": 3}, "reach=3: must be from 0 to 2"),
        ({"sizes": [1, 0]}, "sizes=0: must be at least 1"),
    ):
        with pytest.raises(UserError) as error:
            read(Outer, values)
        assert str(error.value).startswith(named)


def test_keys_that_do_not_count_are_no_part_of_an_object() -> None:
    assert read(Outer, {"kind": "near", "rest": 5}).rest == 0 == read(Outer, {"rest": 5}).rest
    assert read(Outer, {"near": 5}).near == 5, "the kind has a default"
    assert "rest" not in check.to_plain(read(Outer, {}))
    far = read(Outer, {"kind": "far", "rest": 5})
    assert check.to_plain(far)["rest"] == 5 and read(Outer, check.to_plain(far)) == far


@pytest.mark.parametrize("name", ["", "/a", "..", "a/../../b", "."])
def test_a_name_stays_inside_its_directory(name: str) -> None:
    with pytest.raises(UserError, match=r"^name=.*: becomes a path"):
        read(Inner, {"name": name, "size": 1})
    assert read(Inner, {"name": "a/b..c", "size": 1}).name == "a/b..c"


@given(st.one_of(st.integers(-9, 9), st.floats(-9, 9), st.booleans(), st.none(), st.text("ab1. ")))
def test_what_is_made_is_made_again_of_its_plain_values(value: object) -> None:
    for option in check.keys_of(Outer):
        try:
            made = read(Outer, {option: value})
        except UserError as error:
            assert str(error).startswith(option)
        else:
            assert read(Outer, check.to_plain(made)) == made


@pytest.mark.parametrize(
    "kind, text, value",
    [
        *[(int, "3", 3), (float, "1e-3", 0.001), (float, ".5", 0.5), (bool, "true", True)],
        *[(bool, "yes", "yes"), (int, "x", "x"), (str, "3", "3"), (PositiveInt, "4", 4)],
        *[(str | None, "null", None), (PositiveInt | None, "5", 5), (str, "null", "null")],
        *[(Literal["a", "b"], "a", "a")],
    ],
)
def test_texts_of_a_command_line_mean_what_their_key_takes(
    kind: Any, text: str, value: Any
) -> None:
    assert check.parse(kind, text) == value
