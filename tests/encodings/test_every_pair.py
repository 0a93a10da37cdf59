"""Any two options of conf/encoding: decoding is exact and all of it learns, or they are refused.

The settings of two options are merged as Hydra merges those of a list, but without it: composing
2,346 lists would take longer than trying them.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from nmt.checks import example, parity, preflight, trial
from nmt.checks.example import perturbed
from nmt.checks.properties import shift
from nmt.config.catalog import options_of
from nmt.config.data import columns_of
from nmt.config.settings import Settings
from nmt.encodings.registry import find
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.composing import merged, representatives

OPTIONS = options_of("encoding")
PAIRS = {first: [p for p in combinations(OPTIONS, 2) if p[0] == first] for first in OPTIONS[:-1]}
BEAM = next(c for c in parity.CONDITIONS if c.name == "beams")  # steps, and rows that change places
TOKENS = 9
EXACT = 1e-10  # two float64 sums of the same numbers, and logits of unit size
REFUSALS = re.compile(
    "model: encoding: (more than one entry sets the scale of the scores"
    "|one entry must make all embeddings complex|only one entry can take the place of softmax)"
    "|encoding[.]"
    r"\w+: ((reads|makes features of) queries and keys, but|changes queries and keys, of which"
    "|changes nothing, because)"
)

USELESS = re.compile(r"encoding[.]\w+: [\w.]+ \(\w+\): gets no gradient")


@pytest.mark.slow
@pytest.mark.parametrize("first", PAIRS)
def test_every_pair_is_exact_or_refused(
    first: str, settings_of: Callable[..., Settings], record_property: Callable[[str, object], None]
) -> None:
    wrong, refused = [], 0
    for pair in PAIRS[first]:
        one, other = (settings_of(f"encoding={option}") for option in pair)
        settings = replace(one, encoding=merged(one.encoding, other.encoding))
        try:
            if set(pair) <= set(representatives()):  # it takes twice as long as all that follows
                preflight.check(settings)
            found = mistakes(settings)
        except UserError as e:
            found = [str(e)]
        except Exception as e:  # the other pairs are tried, too
            found = [f"{type(e).__name__}: {e}"]
        refused += bool(found)
        wrong += [f"{pair}: {what}" for what in found if not justified(what, settings)]
    record_property("exact", len(PAIRS[first]) - refused)
    record_property("refused", refused)
    assert not wrong, "\n".join(wrong)


def justified(refusal: str, settings: Settings) -> bool:
    """Whether a refusal has one of the reasons that there are."""
    entries = settings.encoding.items()
    deaf = any(find(str(options.get("use", name))).may_lack_gradients for name, options in entries)
    return bool(REFUSALS.match(refusal) or (deaf and USELESS.match(refusal)))


def mistakes(settings: Settings) -> list[str]:
    """What a model in float64 does otherwise than it says."""
    model = perturbed(settings).double()
    # before any pass without gradients, of which FLOATER keeps its path
    found = learned(model, settings)
    model.eval()
    found += decoded(model)
    moved = shift(model)
    relative = all(site.relative for site in model.sites.values())
    deaf = any(e.may_lack_gradients for e in model.entries)  # to what the others change
    same = moved is not None and moved < 1e-5
    if moved is not None and same != relative and not (deaf and same):
        found.append(f"relative is {relative}, but a shift shows {moved:.2g}")
    return found


def decoded(model: Transformer) -> list[str]:
    with torch.inference_mode():
        apart = [float((steps - full).abs().max()) for steps, full in BEAM.compare(model, TOKENS)]
    return [f"step by step differs by {most:.1g}" for most in apart if not most < EXACT]


def learned(model: Transformer, settings: Settings) -> list[str]:
    per = columns_of(settings.data)
    try:
        text = example.text(model, per_sentence=[n for n in per if per[n] == "sentence"])
        trial.step(model, text)
    except trial.CheckError as e:
        return [str(e)]
    return []
