"""Options of conf/encoding together: decoding is exact and all of it learns, or they are refused.

Their settings are merged as Hydra merges those of a list, but without it: composing that many lists
would take longer than trying them.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import combinations

import pytest
import torch

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.checks.training_step import CheckError, try_step
from nmt.config.catalog import options_of
from nmt.config.settings import Settings
from nmt.encodings.registry import find
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.composing import few_representatives, merged, representatives
from tests.fast import fast_first

KINDS = representatives()
TOKENS = 9
EXACT = 1e-10  # two float64 sums of the same numbers, and logits of unit size
PAIRS, DRAWN, LAYERS, HEADS = 120, 120, 3, 4
REFUSALS = re.compile(
    "model: encoding: (more than one entry sets the scale of the scores"
    "|one entry must make all embeddings complex|only one entry can replace softmax)"
    "|encoding[.]"
    r"\w+: (reads queries and keys, but|changes nothing, because)"
)
OF_LAYERS = re.compile(
    r"(model: )?encoding[.]\w+: (layers: (this encoding works on what|without its key)"
    r"|.*there is no [a-z ]*in the decoder)"
)
USELESS = re.compile(r"encoding[.]\w+: [\w.]+ \(\w+\): gets no gradient")


def pairs_of_kinds() -> list[tuple[str, str]]:
    """All pairs of four kinds, and then some of the others."""
    four = [*combinations(few_representatives()[:4], 2)]
    others = [pair for pair in combinations(KINDS, 2) if pair not in four]
    return [*four, *random.Random(2).sample(others, PAIRS)]


@pytest.mark.parametrize("pair", fast_first(6, [(pair,) for pair in pairs_of_kinds()]))
def test_a_pair_of_two_kinds_is_exact_or_refused(
    pair: tuple[str, str], settings_of: Callable[..., Settings]
) -> None:
    one, other = (settings_of(f"encoding={option}") for option in pair)
    settings = replace(one, encoding=merged(one.encoding, other.encoding))
    found = mistakes(settings)
    assert all(justified(what, settings) for what in found), found


@pytest.mark.parametrize("seed", fast_first(1, range(DRAWN // 10)))
def test_some_layers_are_exact_or_refused(seed: int, settings_of: Callable[..., Settings]) -> None:
    """One to three options, each entry in layers of its own."""
    draw, wrong = random.Random(seed), []
    for _ in range(10):
        options = draw.sample(options_of("encoding"), draw.choice([1, 2, 2, 3]))
        each = [restricted(settings_of(f"encoding={option}"), draw) for option in options]
        entries = reduce(merged, (settings.encoding for settings in each))
        settings = replace(each[0], encoding=entries)
        found = mistakes(settings)
        unjustified = [w for w in found if not (justified(w, settings) or OF_LAYERS.match(w))]
        wrong += [f"{entries}: {what}" for what in unjustified]
    assert not wrong, "\n".join(wrong)


def restricted(settings: Settings, draw: random.Random) -> Settings:
    """Each entry in layers of its own; as likely as not in all of them."""
    entries = {name: dict(options) for name, options in settings.encoding.items()}
    for options in entries.values():
        if draw.random() < 0.6:
            options["layers"] = draw.sample(range(LAYERS), draw.randint(1, LAYERS))
    model = replace(settings.model, heads=HEADS, dim=8 * HEADS, feedforward_dim=24)
    model = replace(model, encoder_layers=LAYERS, decoder_layers=LAYERS)
    return replace(settings, encoding=entries, model=model)


def justified(refusal: str, settings: Settings) -> bool:
    """Whether a refusal has one of the reasons that there are."""
    entries = settings.encoding.items()
    deaf = any(find(str(options.get("use", name))).may_lack_gradients for name, options in entries)
    return bool(REFUSALS.match(refusal) or (deaf and USELESS.match(refusal)))


def mistakes(settings: Settings) -> list[str]:
    """What a model in float64 does otherwise than it says, or why it is refused."""
    try:
        model = build_perturbed(settings).double()
    except UserError as error:
        return [str(error)]
    # before any pass without gradients, of which FLOATER keeps its path
    found = learned(model)
    model.eval()
    with torch.inference_mode():
        apart = [
            float((steps - full).abs().max())
            for steps, full in parity.compare("beams", model, TOKENS)
        ]
    found += [f"step by step differs by {most:.1g}" for most in apart if not most < EXACT]
    return found


def learned(model: Transformer) -> list[str]:
    try:
        try_step(model)
    except CheckError as e:
        return [str(e)]
    return []
