"""Options of conf/encoding in some layers only: exact and learning, or refused.

Pairs and triples are drawn at random, each entry with `layers:` of its own.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import pytest

from nmt.checks import preflight
from nmt.checks.example import perturbed
from nmt.config.catalog import options_of
from nmt.config.settings import Settings
from nmt.errors import UserError
from tests.composing import merged
from tests.encodings.test_every_pair import decoded, justified, learned
from tests.fast import fast_first

DRAWN, LAYERS, HEADS = 500, 3, 4
REFUSED = re.compile(
    r"encoding[.]\w+: (layers: (this encoding works on what|without its key)"
    r"|.*there is no [a-z ]*in the decoder)"
)


@pytest.mark.parametrize("seed", fast_first(1, range(DRAWN // 20)))
def test_some_layers_are_exact_or_refused(
    seed: int, settings_of: Callable[..., Settings], record_property: Callable[[str, object], None]
) -> None:
    draw, wrong, refused = random.Random(seed), [], 0
    for _ in range(20):
        options = draw.sample(options_of("encoding"), draw.choice([1, 2, 2, 3]))
        each = [restricted(settings_of(f"encoding={option}"), draw) for option in options]
        entries = reduce(merged, (settings.encoding for settings in each))
        settings = replace(each[0], encoding=entries)
        try:
            preflight.check(settings)
        except UserError as e:
            refused += 1
            if not (justified(str(e), settings) or REFUSED.match(str(e).removeprefix("model: "))):
                wrong.append(f"{entries}: {e}")
            continue
        try:
            wrong += [f"{entries}: {what}" for what in mistakes(settings)]
        except Exception as e:  # the others are tried, too
            wrong.append(f"{entries}: {type(e).__name__}: {e}")
    record_property("refused", refused)
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


def mistakes(settings: Settings) -> list[str]:
    """What a model in float64 does otherwise than it should."""
    model = perturbed(settings).double()
    return decoded(model) + learned(model, settings)
