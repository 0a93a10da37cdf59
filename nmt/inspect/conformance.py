"""Try all properties of an encoding on a model: for `nmt.testing` and for --check."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from nmt.build import count_layers, meta_model
from nmt.checks.example import VOCAB
from nmt.checks.trial import CheckError
from nmt.config.compose import experiment_of
from nmt.config.settings import Settings
from nmt.errors import where_raised
from nmt.inspect import parity, properties
from nmt.inspect.parity import BOUNDS, TOKENS, perturbed
from nmt.model.transformer import Transformer

MOST = 32  # layers of the model that is checked
CHECKS: dict[str, Callable[[Transformer], str]] = {  # in this order
    check.__name__.replace("_", " "): check for check in properties.PROPERTIES
}
STEP = "training step"
OF_TRAINED = ("later tokens and padding", "long and empty sequences")  # whatever was learned


class Result(NamedTuple):
    """The result of one check."""

    check: str  # as "training step" or "decoding: beams, bfloat16"
    passed: bool
    finding: str  # the figure; where the check failed, what is at fault


def run_checks(
    model: Transformer,
    order_matters: bool | None = True,
    tokens: int = TOKENS,
    precisions: Iterable[str] = BOUNDS,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    only: Iterable[str] | None = None,
) -> Iterator[Result]:
    """Try all of it on a model in eval mode, one result after the other; a failed step ends it.

    `order_matters`: whether an encoder must tell the order of its tokens; None: either will do.
    `tokens`, `precisions` and `device` are of the comparison of cached decoding with the full pass.
    `only`: the names of the other checks that are tried; None: all.
    """
    checks_by_name = CHECKS | {
        "order in the encoder": partial(properties.order_in_the_encoder, matters=order_matters)
    }
    for name in checks_by_name if only is None else only:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            result = _result(name, checks_by_name[name], copy.deepcopy(model))
        yield result
        if name == STEP and not result.passed:
            return  # a hook that raises would fail all others, too
    failed = False
    for d in parity.measure(copy.deepcopy(model).to(device), tokens, precisions):
        hint = d.condition.look if d.precision == "float32" else parity.ONLY_REDUCED
        look = "" if d.passed or d.error or failed else f"; look at: {hint}"
        failed = failed or not d.passed  # of several, the simplest condition tells most
        yield Result(f"decoding: {d.condition.name}, {d.precision}", d.passed, d.finding + look)


def _result(name: str, check: Callable[[Transformer], str], model: Transformer) -> Result:
    try:
        return Result(name, True, check(model))
    except CheckError as e:
        return Result(name, False, str(e))
    except Exception as e:  # whatever an encoding raises, in any of its hooks
        named = isinstance(e, ValueError) and str(e).startswith("encoding.")
        return Result(name, False, str(e) if named else where_raised(e))


def small_settings(
    encoding: str, overrides: Sequence[str] = (), entries: dict[str, dict[str, Any]] | None = None
) -> Settings:
    """Settings of an option of encoding=, in a model as small as can be unless model= is chosen.

    It has more layers where the encodings list more. `entries` replace the option's.
    """
    keys = {override.partition("=")[0] for override in overrides}
    settings = experiment_of([*overrides, f"encoding={encoding}"]).settings
    entries = settings.encoding if entries is None else entries
    if "model" not in keys:
        layers = min(MOST, max(2, count_layers(entries)))
        small = {"heads": 2, "dim": 32, "feedforward_dim": 48}
        small |= {"encoder_layers": layers, "decoder_layers": layers}
        chosen: dict[str, Any] = {k: n for k, n in small.items() if f"model.{k}" not in keys}
        settings = replace(settings, model=replace(settings.model, **chosen))
    return replace(settings, encoding=entries)


def subject(settings: Settings) -> Transformer:
    """The model to check; raises UserError if it cannot be built, with or without numbers."""
    meta_model(settings, VOCAB, VOCAB)  # as cards have it, and training before it begins
    return perturbed(settings)


def failures(results: Iterable[Result]) -> list[str]:
    """A line for each different failure, with the checks that met it."""
    met: dict[str, list[str]] = {}
    for result in results:
        if not result.passed:
            met.setdefault(result.finding, []).append(result.check)
    return [f"{', '.join(names)}: {finding}" for finding, names in met.items()]
