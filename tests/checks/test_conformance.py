"""What `check_encoding` takes and returns; test_planted_faults.py shows what it finds."""

import re
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from nmt.checks.example import build_perturbed, small_settings
from nmt.checks.parity import CONDITIONS
from nmt.checks.properties import CHECKS, NOISE
from nmt.checks.run import failures, run_checks
from nmt.encodings.base import Context, Dims, Encoding, set_to_zero
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
        return set_to_zero(self.strength)


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


class Raising(Right):
    def wrong(self, bias: Tensor, context: Context) -> Tensor:
        raise KeyError("nothing here")


def test_all_results_come_back() -> None:
    results = check_encoding(Dropping, tokens=4)
    cells = [f"decoding: {c}, {p}" for p in ("float32", "bfloat16") for c in CONDITIONS]
    assert [r.check for r in results] == [*CHECKS, *cells]
    assert all(r.passed and r.finding for r in results)
    assert NOISE in Dropping.seen


@pytest.mark.parametrize("key", ["sliding_window.size=64", "gaussian.std=0.2"])
def test_a_window_may_be_narrow_or_wide(key: str) -> None:
    model = build_perturbed(small_settings(key.split(".")[0], [f"encoding.{key}"]))
    only = ["kind of positions", "order in the encoder", "order in the decoder"]
    assert all(result.passed for result in run_checks(model, precisions=[], only=only))


def test_a_failure_of_decoding_names_the_condition_and_the_figure() -> None:
    model = build_perturbed(small_settings("none", entries={"mine": {"use": OffByOne}}))
    lines = failures(run_checks(model, tokens=4, precisions=["float32"], only=[]))
    assert re.search("token by token, float32.*: largest difference [^,]+, allowed", lines[0])


def test_a_failed_step_ends_it() -> None:
    with pytest.raises(AssertionError, match=r"checks that failed: 1[^\n]*\n.*KeyError at [^\n]*$"):
        check_encoding(Raising)


def test_options_of_a_class_and_overrides_count_also_in_inference_mode() -> None:
    before = torch.get_rng_state()
    with torch.inference_mode():  # which a notebook may have turned on
        check_encoding(Right, "model.norm=post", strength=0.1, layers=[0, 2], precisions=[])
    assert torch.equal(before, torch.get_rng_state())


def test_who_says_that_order_does_not_matter_must_be_right() -> None:
    model = build_perturbed(small_settings("[relative,alibi]", ["tau=2"]))
    (result,) = run_checks(model, False, precisions=[], only=["order in the encoder"])
    assert "matters, though order_matters=False" in result.finding


def test_what_cannot_be_built_is_refused() -> None:
    name = "encoding.right.strenght"
    for arguments, options, message in (
        ((Right,), {"strenght": 0.1}, f"{name}: no such key; did you mean strength"),
        ((Right,), {"layers": [5000]}, "encoding.right: layers=[5000]: list different numbers"),
        ((ReadingTensors,), {}, "encoding=[readingtensors]: the model cannot be built: NotImpl"),
        (("relative",), {"tau": 3}, "tau: options go with a class; give overrides"),
        ((small_settings("none"), "tau=2"), {}, "overrides and config_dir: give them to nmt.com"),
    ):
        with pytest.raises(UserError) as refused:
            check_encoding(*arguments, **options)
        assert str(refused.value).startswith(message)
