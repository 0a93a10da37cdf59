"""Types, choices and bounds of options: what a config may say of an encoding or of positions."""

from typing import Any, get_args

import pytest
import torch

from nmt.encodings.registry import create, find, names, options_of
from tests.encodings.attending import dims


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
    said = rf"encoding\.{use}\.{option}={value}: must be (at least|above) \d$"
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
