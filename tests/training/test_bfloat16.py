"""Training in bfloat16 learns what training in float32 learns."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt.corpus.prepare import Prepared
from tests.training import tiny

STEPS, EVERY = 200, 25
RATE = 0.002  # at 0.01, float32 itself strays by 3 % when weights begin a ten-thousandth apart


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["absolute", "relative"])
def test_bfloat16_has_the_losses_of_float32(
    encoding: str, data: Prepared, tmp_path: Path, pretend: Callable[..., None]
) -> None:
    pretend(trains_in_bfloat16=True)  # here as anywhere
    chosen = {"absolute": {}, "relative": {"tau": 4}}[encoding]
    found = {}
    for precision in ("float32", "bfloat16"):
        run = tmp_path / precision
        tiny.train(
            run, data, encoding={encoding: chosen}, trainer__precision=precision,
            trainer__max_epochs=None, trainer__max_steps=STEPS, trainer__log_every=EVERY,
            trainer__batch_tokens=640, optim__patience=100, optim__lr=RATE,
        )  # fmt: skip
        found[precision] = np.array([line["loss"] for line in tiny.lines(run, "train")])
    exact, lower = found.values()
    assert len(exact) == STEPS // EVERY and exact[-1] < 0.9 * exact[0]
    assert np.abs(lower / exact - 1).max() < 0.01
    assert (lower != exact).any()  # else nothing was computed in bfloat16
