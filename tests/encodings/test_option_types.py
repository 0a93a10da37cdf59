"""Types, choices and bounds of options: what a config may say of an encoding or of positions."""

from typing import Annotated, Any, Literal, get_args

import pytest
import torch

from nmt.encodings.lookup import find, names
from nmt.encodings.options import Bound, NonNegativeInt, PositiveFloat, PositiveInt, check
from nmt.encodings.registry import create, options_of
from tests.encodings.attending import dims

KINDS: dict[str, Any] = {
    "flag": bool,
    "text": str,
    "number": float,
    "count": PositiveInt,
    "rest": NonNegativeInt,
    "factor": Annotated[float, Bound(1)],
    "step": PositiveFloat,
    "kind": Literal["near", "far"],
    "method": Literal[1, 2],
    "size": PositiveInt | None,
    "share": PositiveFloat | None,
    "sizes": list[int],
    "either": int | str,
}


@pytest.mark.parametrize(
    "option, value",
    [
        *[("flag", True), ("text", "x"), ("number", 1), ("number", -0.5), ("count", 1)],
        *[("rest", 0), ("factor", 1), ("step", 1e-9), ("kind", "far"), ("method", 2)],
        *[("size", None), ("size", 3), ("sizes", [1, 2]), ("either", 1), ("either", "x")],
    ],
)
def test_what_fits_passes(option: str, value: object) -> None:
    assert check({option: value}, KINDS) == {option: value}


def test_a_whole_number_is_a_float_where_one_is_expected() -> None:
    numbers = dict.fromkeys(("number", "factor", "step", "share"), 1)
    for value in check(numbers, KINDS).values():
        assert type(value) is float and value == 1
    assert check({"share": None, "count": 1}, KINDS) == {"share": None, "count": 1}
    assert type(check({"count": 1}, KINDS)["count"]) is int


@pytest.mark.parametrize(
    "option, value, said",
    [
        ("flag", 1, "flag=1: expected bool"),
        ("text", 1, "text=1: expected str"),
        ("number", "3", "number=3: expected float, not the text '3'"),
        ("number", True, "number=True: expected float"),
        ("number", float("nan"), "number=nan: expected a finite number"),
        ("number", float("inf"), "number=inf: expected a finite number"),
        ("count", 0, "count=0: must be at least 1"),
        ("count", 1.0, "count=1.0: expected int"),
        ("rest", -1, "rest=-1: must be at least 0"),
        ("factor", 0.5, "factor=0.5: must be at least 1"),
        ("step", 0.0, "step=0.0: must be above 0"),
        ("kind", "there", "kind=there: choose one of near, far"),
        ("method", 3, "method=3: choose one of 1, 2"),
        ("method", True, "method=True: choose one of 1, 2"),
        ("size", 0, "size=0: must be at least 1"),
        ("size", True, "size=True: expected int"),
        ("sizes", 3, "sizes=3: expected list"),
        ("cuont", 1, "no option 'cuont'; did you mean 'count'?"),
    ],
)
def test_what_does_not_fit_is_named(option: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as e:
        check({option: value}, KINDS)
    assert str(e.value) == said
    with pytest.raises(ValueError, match=r"^at\.here(\.|: no option)"):
        check({option: value}, KINDS, where="at.here")


@pytest.mark.parametrize(
    "use, option, value",
    [
        *[("axial", "t1", 0), ("axial", "t2", 0), ("axial", "first", 0)],
        *[("bias_table", "longest", 0), ("composite", "tau", -1), ("conv_spe", "kernel", 0)],
        *[("cope", "counts", 1), ("dape", "width", 0), ("deberta", "k", 0), ("diet", "rank", 0)],
        *[("diet", "longest", 0), ("fire", "hidden", 0), ("floater", "step", 0.0)],
        *[("floater", "substeps", 0), ("gru", "hidden", 0), ("huang", "tau", -1)],
        *[("learned", "size", 0), ("lrpe", "noise", -1), ("lstm", "hidden", 0)],
        *[("per_language", "languages", 0), ("per_language", "longest", 0)],
        *[("relative", "tau", -1), ("relative", "longest", 0), ("relative_sinusoidal", "tau", -1)],
        *[("rotary", "base", 1.0), ("rotary", "factor", 0.5), ("shaw_absolute", "longest", 0)],
        *[("sigmoid_attention", "keys", -1), ("sine_spe", "waves", 0)],
        *[("sine_spe", "realizations", 0), ("tpe", "depth", 0), ("tpe", "branches", 0)],
        *[("tupe", "longest", 0), ("xpos", "scale_base", 0.0), ("xpos", "base", 1.0)],
        *[("yarn", "factor", 0.5), ("yarn", "attention", -1.0), ("yarn", "beta_slow", 0.0)],
    ],
)
def test_numbers_that_mean_nothing_are_refused(use: str, option: str, value: float) -> None:
    said = rf"encoding\.{use}: {option}={value}: must be (at least|above) \d$"
    with pytest.raises(ValueError, match=said):
        create({use: {option: value}}, dims())


@pytest.mark.parametrize("use", names())
def test_words_that_mean_nothing_are_refused(use: str) -> None:
    """No option of text takes any word, but names of columns."""
    for option, kind in options_of(find(use)).items():
        if kind is not str:
            with pytest.raises(ValueError, match=f"{option}=nothing: (choose one of|expected)"):
                create({use: {option: "nothing"}}, dims())
        else:
            assert option in ("labels", "order", "column")


@pytest.mark.parametrize("use", names())
def test_whole_numbers_give_what_floats_give(use: str) -> None:
    """A parameter, too, cannot be an integer; what both mean may be refused."""
    for option, kind in options_of(find(use)).items():
        if float in (kind, *get_args(kind)):
            whole, real = (_made(use, {option: value}) for value in (2, 2.0))
            assert whole == real


def _made(use: str, options: dict[str, Any]) -> str | dict[str, list[Any]]:
    torch.manual_seed(0)
    try:
        (e,) = create({use: options}, dims())
    except ValueError as error:
        return str(error)
    return {name: t.tolist() for name, t in e.state_dict().items()}
