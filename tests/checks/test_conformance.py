"""What `check_encoding` takes and returns; test_planted_faults.py shows what it finds."""

import re
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from nmt.checks.example import small_settings
from nmt.checks.parity import CONDITIONS
from nmt.checks.properties import CHECKS, NOISE
from nmt.encodings.base import Context, Dims, Encoding, zeroed
from nmt.errors import UserError
from nmt.testing import check_encoding


class Right(Encoding):
    """Subtracts a learned multiple of the distance; what is wrong below is added to it."""

    relative = True

    def __init__(self, dims: Dims, strength: float = 0.5) -> None:
        super().__init__(dims)
        self.strength = nn.Parameter(torch.full((), strength))

    def bias(self, layer: int, context: Context) -> Tensor:
        return self.wrong(-self.strength * context.delta.abs()[:, None], context)

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        """What a subclass makes of the bias [batch | 1, 1, query, key]."""
        return bias

    def zero_initialise(self) -> bool:
        return zeroed(self.strength)


class Misshapen(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias[:, 0]


class Dropping(Right):
    """Right: what it draws in training, it draws once more when it is computed twice."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.dropout = nn.Dropout(0.1)

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        self.seen.add(self.dropout.p)
        return self.dropout(bias)

    seen: ClassVar[set[float]] = set()


class OffByOne(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        steps = context.state is not None and context.site == "decoder"
        return bias.roll(1, -1) if steps else bias


class ReadingTensors(Right):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.slopes = torch.arange(dims.heads).tolist()


class NamedLikeAMethod(Right):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.table = nn.Parameter(torch.ones(()))  # type: ignore[method-assign, assignment]


class Raising(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        raise KeyError("nothing here")


def test_all_results_come_back() -> None:
    results = check_encoding(Right, tokens=8)
    cells = [f"decoding: {c.name}, {p}" for p in ("float32", "bfloat16") for c in CONDITIONS]
    assert [r.check for r in results] == [*CHECKS, *cells]
    assert all(r.passed and r.finding for r in results)


@pytest.mark.parametrize(
    "key", [*(f"sliding_window.size={n}" for n in (1, 16, 64)), "gaussian.std=0.2"]
)
def test_a_window_may_be_narrow_or_wide(key: str) -> None:
    check_encoding(key.split(".")[0], f"encoding.{key}", precisions=[])


def test_dropout_may_be_a_module() -> None:
    check_encoding(Dropping, tokens=4, precisions=[])
    assert NOISE in Dropping.seen


def test_nothing_else_is_tried_once_a_step_fails() -> None:
    for cls in (Misshapen, Raising):
        with pytest.raises(AssertionError, match=r"\]: checks that failed: 1\n[^\n]*$"):
            check_encoding(cls)


def test_only_the_first_failure_of_decoding_has_a_hint() -> None:
    with pytest.raises(AssertionError) as raised:
        check_encoding(OffByOne, tokens=8)
    said = str(raised.value)
    assert said.count("look at") == 1 and "decoding: beams" in said
    assert re.search("token by token, float32: .*; look at: positions while one", said)


@pytest.mark.slow
def test_order_may_not_matter() -> None:
    check_encoding("none", order_matters=False, tokens=4, precisions=["float32"])
    with pytest.raises(AssertionError, match="has no effect"):
        check_encoding("none", tokens=4, precisions=[])
    with pytest.raises(AssertionError, match="though it was said not to matter"):
        check_encoding("relative", order_matters=False, tokens=4, precisions=[])


@pytest.mark.slow
def test_options_of_a_class_and_overrides() -> None:
    both: dict[str, Any] = {"tokens": 4, "precisions": ["float32"]}
    check_encoding(Right, "model.norm=post", strength=0.1, where=["encoder"], **both)
    check_encoding("[relative,alibi]", "tau=2", "model.dim=16", **both)
    check_encoding(small_settings("learned", ["encoding.learned.size=20"]), **both)


def test_the_model_has_the_layers_that_are_named() -> None:
    check_encoding(Right, layers=[0, 2], tokens=4, precisions=[])
    with pytest.raises(UserError, match=r"layers=\[0, 2\]: list different numbers from 0 to 1"):
        check_encoding(Right, "model.encoder_layers=2", layers=[0, 2])
    with pytest.raises(UserError, match=r"layers=\[5000\]: list different numbers from 0 to 31"):
        check_encoding(Right, layers=[5000])


def test_a_table_may_hold_few_positions() -> None:
    """A shift leaves room for five tokens of ten."""
    with torch.inference_mode():  # which a notebook may have turned on
        check_encoding("learned", "encoding.learned.size=10", tokens=4, precisions=["float32"])


def test_what_cannot_be_built_is_refused() -> None:
    for arguments, options, message in (
        (
            (Right,),
            {"strenght": 0.1},
            "encoding.right.strenght: no such key; did you mean strength",
        ),
        ((ReadingTensors,), {}, "encoding=[readingtensors]: the model cannot be built: NotImpl"),
        ((NamedLikeAMethod,), {}, "encoding=[namedlikeamethod]: the model cannot be built: KeyErr"),
        (("relative",), {"tau": 3}, "tau: options go with a class; give overrides"),
        (("relativ",), {}, "encoding=relativ: no such option"),
        (("relative", "model.heads=5"), {}, "model.heads=5: must divide model.dim=32"),
        (
            (small_settings("none"), "tau=2"),
            {},
            "overrides and config_dir: give them to nmt.compose, which",
        ),
        (
            (small_settings("none"),),
            {"config_dir": "mine"},
            "overrides and config_dir: give them to",
        ),
        ((Right,), {"config_dir": "/nowhere"}, "--config-dir: name a directory of your own"),
    ):
        with pytest.raises(UserError) as refused:
            check_encoding(*arguments, **options)
        assert str(refused.value).startswith(message)


@pytest.mark.slow
def test_the_generator_of_the_caller_is_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = check_encoding("sine_spe_stochastic", tokens=4, precisions=["float32"])
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(8)
    again = check_encoding("sine_spe_stochastic", tokens=4, precisions=["float32"])
    assert again == first
