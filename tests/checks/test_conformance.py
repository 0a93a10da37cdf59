"""Every check of `check_encoding` fails where it should, and says what is at fault."""

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
from tests.fast import fast_first


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


class Unlearned(Right):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.more = nn.Parameter(torch.ones(3))

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias + 0 * self.more.sum()


class Future(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias * context.keys.shape[1]


class Absolute(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias * (1 + context.keys[:, None, None, :] / 10)


class Modest(Right):
    relative = False


class Orderless(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias if context.site == "decoder" else 0 * bias + self.strength


class Blind(Right):
    position_type = "none"


class Whole(Right):
    """Reads whole numbers, but says real ones."""

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return self.strength * torch.arange(300).to(bias)[context.delta.abs()][:, None]


class Signs(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return self.strength * context.delta.sign()[:, None]


class Short(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias.where(context.delta.abs()[:, None] < 100, torch.nan)


class NotZero(Right):
    def zero_initialise(self) -> bool:
        return True


class Counting(Right):
    """Keeps on itself how often it was called, in training."""

    calls = 0

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        self.calls += context.training
        return bias * (1 + self.calls)


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


class Rounding(Right):
    """Right in float32; in bfloat16 it decodes with other numbers."""

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        low = torch.is_autocast_enabled("cpu") and context.state is not None
        return bias.roll(1, -1) if low else bias


class Unsaved(Right):
    """Its list is no nn.ParameterList."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.per_layer = [nn.Parameter(torch.randn(())) for _ in range(dims.layers)]

    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        return bias + self.per_layer[0]


class Rounded(Encoding):
    """Adds cosines of positions that bfloat16 rounds."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        low = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        at = context.queries.to(low).float()[..., None]
        return x + (at * torch.arange(1, x.shape[-1] + 1)).cos()


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


@pytest.mark.parametrize(
    ("cls", "check", "finding"),
    fast_first(
        5,
        [
            (Orderless, "order in the encoder", "the order of tokens has no effect"),
            (Misshapen, "training step", "encoding.misshapen: its `bias` returns ["),
            (Raising, "training step", "KeyError at test_conformance.py:"),
            (Short, "long and empty sequences", "NaN or infinity for 200 tokens"),
            (
                Unlearned,
                "training step",
                "encoding.unlearned: more (encoder): its gradient is zero",
            ),
            (
                Future,
                "later tokens and padding",
                "encoding.future: its `bias` (decoder) lets earlier",
            ),
            (
                Absolute,
                "common shift of positions",
                "`relative`: true is claimed, but a shift shows",
            ),
            (
                Modest,
                "common shift of positions",
                "`relative`: false is claimed (the default), but",
            ),
            (Blind, "kind of positions", "position_type none, but positions times 2 show"),
            (Unsaved, "training step", "encoding.unsaved: per_layer (encoder) is neither a param"),
            (Rounded, "far positions", "differs from float32 by"),
            (Signs, "kind of positions", "position_type real, but positions times 2048 show 0"),
            (Whole, "kind of positions", "IndexError at test_conformance.py:"),
            (NotZero, "zero initialised", "encoding.notzero: zero-initialised, but it changes"),
            (Counting, "recomputation", "differs in torch.float32 if computed twice"),
            (
                Rounding,
                "decoding: token by token, bfloat16",
                "; look at: what is computed in bfloat16 but",
            ),
        ],
    ),
)
def test_what_is_wrong_is_named(cls: type[Encoding], check: str, finding: str) -> None:
    precisions = [check.rpartition(", ")[2]] if check.startswith("decoding") else []
    with pytest.raises(AssertionError) as raised:
        check_encoding(cls, tokens=8, precisions=precisions)
    heading, *lines = str(raised.value).split("\n")
    assert heading.startswith(f"encoding=[{cls.__name__.lower()}]: checks that failed: ")
    assert any(check in line and finding in line for line in lines), lines


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
        (
            (ReadingTensors,),
            {},
            "encoding=[readingtensors]: the model cannot be built: NotImpl",
        ),
        (
            (NamedLikeAMethod,),
            {},
            "encoding=[namedlikeamethod]: the model cannot be built: KeyErr",
        ),
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
