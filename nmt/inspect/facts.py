"""Facts of an encoding for its card and the survey's table, derived from code and from running it.

The columns are those of Table 1 of Dufter, Schmitt, Schütze (2022), and the parameters that it
counts.
"""

from functools import cached_property
from typing import NamedTuple

import torch

from nmt import build
from nmt.checks import example
from nmt.checks.example import Sentences
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.passes import list_computed
from nmt.inspect.single import apply_hooks, changes_by_part, pass_over
from nmt.model.transformer import Transformer

SITES = ("encoder", "decoder", "cross")
IN_EVERY_LAYER = {"layer", "project", "scores", "bias", "normalise", "outputs"}
IN_ATTENTION = {"scores", "bias", "normalise", "outputs"}


class SurveyFacts(NamedTuple):
    """One row of the survey's columns; `Probe` and the comments say what each means here."""

    reference: str  # A, R, B (both) or -
    injection: str  # ape, mam, both or -
    learnable: bool  # it has parameters
    recurring: bool  # it acts in every layer, not at the bottom or the top of the stack alone


def facts_of(model: Transformer, option: str = "") -> SurveyFacts:
    """The facts of the entry that bears the option's name, or else of all entries together.

    What stands beside it, as in a decoder that has no tree, is another method.
    """
    entries, text = [e for e in model.entries if e.name == option], example.text(model)
    probes = [Probe(e, text) for e in entries or model.entries if e.hooks]
    return SurveyFacts(
        _merge({probe.reference for probe in probes}, "B"),
        _merge({probe.injection for probe in probes}, "both"),
        any(True for probe in probes for _ in probe.encoding.parameters()),
        any(IN_EVERY_LAYER & probe.hooks for probe in probes),
    )


class Probe:
    """One encoding at its site, applied to two contents at the same places."""

    def __init__(self, encoding: Encoding, text: Sentences) -> None:
        self.encoding, self.hooks = encoding, set(encoding.hooks)
        site = encoding.dims.site
        ids = text.target if site == "decoder" else text.source
        self._context = pass_over(encoding, ids, text.columns)
        draw = torch.Generator().manual_seed(0)
        contents = torch.randn(2, *ids.shape, encoding.dims.dim, generator=draw)
        with torch.inference_mode():
            self._answers = [apply_hooks(encoding, x, self._context) for x in contents]

    @cached_property
    def reference(self) -> str:
        """Reference point: R if a common shift of all positions changes nothing.

        That is what it says (`relative`, which `conformance.common_shift` tries), or its class, of
        which it may be an estimate. But vectors added to single tokens tell no distances (survey,
        section 3.2), so ape alone is A. Otherwise A if it never asks for the distance between two
        tokens, and B if it does, because then it tells both the place of a token and its distance.
        """
        if self.injection == "ape":
            return "A"
        if self.encoding.relative or type(self.encoding).relative:
            return "R"
        return "B" if "delta" in list_computed(self._context) else "A"

    @cached_property
    def injection(self) -> str:
        """Injection: ape if it adds vectors that depend on places and not on the content of tokens.

        It may add them to embeddings, to a layer's input or to queries and keys. mam if it changes
        attention otherwise: through the scores, a bias, the values, or by changing queries and keys
        depending on their content. Neither (-) if it replaces embeddings by something else.
        """
        kinds = {part: kind for part, (kind, _) in changes_by_part(*self._answers).items()}
        if self.encoding.streams > 1:
            kinds = {"embed": "more"}
        replaces = "more" in (kinds["embed"], kinds.get("layer"))
        modifies = IN_ATTENTION & self.hooks or "more" in (kinds.get("query"), kinds.get("key"))
        if modifies and replaces:
            return "-"
        adds = "vectors" in kinds.values()
        return "both" if adds and modifies else "ape" if adds else "mam" if modifies else "-"


def _merge(kinds: set[str], several: str) -> str:
    kinds = kinds - {"-"}
    return "-" if not kinds else kinds.pop() if len(kinds) == 1 else several


def parameter_counts(settings: Settings) -> list[tuple[int, int]]:
    """Parameters of each site: how many, and how many more for each word type of its side."""
    few, more = dict.fromkeys(SITES, 0), dict.fromkeys(SITES, 0)
    for sizes, vocab in ((few, 8), (more, 9)):
        for e in build.meta_model(settings, vocab, vocab).entries:
            sizes[e.dims.site] += sum(p.numel() for p in e.parameters())
    return [(few[s] - 8 * (more[s] - few[s]), more[s] - few[s]) for s in SITES]


def format_counts(counts: list[tuple[int, int]]) -> str:
    """12,345 or 12,345 + 1,024 V of all sites, V being the size of the vocabulary."""
    fixed, per_word = (sum(part) for part in zip(*counts, strict=True))
    if not per_word:
        return f"{fixed:,}"
    return f"{fixed:,} + {per_word:,} V" if fixed else f"{per_word:,} V"
