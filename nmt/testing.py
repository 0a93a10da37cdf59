"""Checks for encodings of your own, in one line of pytest.

from nmt.testing import check_encoding

def test_mine() -> None:
    check_encoding(Mine, strength=0.25)
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from nmt.checks.example import build_perturbed, small_settings
from nmt.checks.parity import BOUNDS, TOKENS
from nmt.checks.run import PAGE, Result, failures, run_checks
from nmt.config.catalog import config_dir_override
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.system.device import pick, set_up

__all__ = ["Result", "check_encoding"]


@torch.inference_mode(False)  # and gradients
def check_encoding(
    encoding: str | type[Encoding] | Settings,
    *overrides: str,
    order_matters: bool = True,
    tokens: int = TOKENS,
    precisions: Iterable[str] = BOUNDS,
    device: str | torch.device = "cpu",
    config_dir: str | Path | None = None,
    **options: Any,
) -> list[Result]:
    """Check on a small model that an encoding is fit for training and decoding; some seconds.

    `encoding` is an option (`"relative"`, several as `"[absolute,relative]"`, those of `config_dir`
    among them), a class, or the settings of a model (`nmt.compose(...).settings`). `overrides` are
    those of a command line, as `"model.norm=post"`; model.dim, heads and layers change nothing.
    `options` are arguments of the class, and `where` and `at`. No parameter keeps its first value.

    Tried are the functions of `nmt.checks.properties`; then `nmt.checks.parity` compares decoding
    of `tokens` tokens with a cache with one pass, in these `precisions` (float32, bfloat16) and on
    this `device`. `order_matters`: whether an encoder must tell the order of its tokens.

    Returns all results. Raises AssertionError that names each check that failed, with the figure;
    UserError for what cannot be built.
    """
    if options and not isinstance(encoding, type):
        raise UserError(f"{next(iter(options))}: options go with a class; give overrides")
    if isinstance(encoding, Settings) and (overrides or config_dir is not None):
        raise UserError("overrides and config_dir: give them to nmt.compose, with the settings")
    folder = config_dir_override(None if config_dir is None else str(config_dir))
    if isinstance(encoding, Settings):
        settings = encoding
    elif isinstance(encoding, str):
        settings = small_settings(encoding, [*folder, *overrides])
    else:
        entry = {encoding.__name__.lower(): {"use": encoding, **options}}
        settings = small_settings("none", [*folder, *overrides], entry)
    chosen = pick(device)
    set_up(chosen)  # in exact float32
    model = build_perturbed(settings)
    results = list(run_checks(model, order_matters, tokens, precisions, chosen))
    if lines := failures(results):
        count = sum(not result.passed for result in results)
        first = f"encoding=[{','.join(settings.encoding)}]: checks that failed: {count}; see {PAGE}"
        raise AssertionError("\n".join([first, *lines]))
    return results
