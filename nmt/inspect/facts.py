"""The columns of the survey's Table 1 (Dufter, Schmitt, Schütze 2022), derived from the code."""

from typing import NamedTuple

import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.composition import hooks_of
from nmt.inspect.checks import BY, Shifted
from nmt.inspect.specimen import Specimen, ask, entries, pass_over
from nmt.model.transformer import Transformer

CLOSE = 1e-4
IN_EVERY_LAYER = {"layer", "project", "scores", "bias", "values"}
AT_BOTTOM = {"embed", "layer"}
IN_ATTENTION = {"scores", "bias", "values"}


class Facts(NamedTuple):
    """One row of the survey's columns; see the functions below for what each means here."""

    reference: str  # A, R, B (both) or -
    injection: str  # ape, mam, both or -
    learnable: bool
    recurring: bool
    unbound: bool


def facts_of(specimen: Specimen, option: str = "") -> Facts:
    """The facts of the entry that bears the option's name, or else of all entries together.

    What stands beside it, as in a decoder that has no tree, is another method.
    """
    named = own(specimen.model, option)
    sites = [(site, e) for site, e in named if hooks_of(type(e))]
    every = [e for _, e in sites]
    return Facts(
        _merge({reference(e, site, specimen) for site, e in sites}, "B"),
        _merge({injection(e, site, specimen) for site, e in sites}, "both"),
        any(learnable(e) for e in every),
        any(recurring(e) for e in every),
        all(unbound(e) for e in every),
    )


def own(model: Transformer, option: str) -> list[tuple[str, Encoding]]:
    """The encodings of the entry that bears the option's name, with sites; else all."""
    every = entries(model)
    return [(site, e) for site, e in every if e.name == option] or every


def reference(e: Encoding, site: str, specimen: Specimen) -> str:
    """Reference point: R if a common shift of all positions changes nothing.

    That is what its class says (`relative`, which tests hold it to), or what it does here. But
    vectors added to single tokens tell no distances (survey, section 3.2), so ape alone is A.
    Otherwise A if it never asks for the distance between two tokens, and B if it does, because
    then it tells both the place of a token and its distance.
    """
    if injection(e, site, specimen) == "ape":
        return "A"
    if type(e).relative or _shift_invariant(e, site, specimen):
        return "R"
    return "B" if "distances" in _probe(e, site, specimen).asked else "A"


def _shift_invariant(e: Encoding, site: str, specimen: Specimen) -> bool:
    ids = specimen.target if site == "decoder" else specimen.source
    if site == "cross" and AT_BOTTOM & set(hooks_of(type(e))):
        return False  # its positions came in at the bottom of the stacks
    if e.positions.pairs or (e.limit is not None and e.limit < ids.shape[1] + BY):
        return False
    x = torch.randn(*ids.shape, e.dims.dim, generator=torch.Generator().manual_seed(0))
    kept = e.positions
    with torch.inference_mode():
        before = ask(e, x, pass_over(ids, site, specimen.columns))
        e.positions = Shifted(kept)
        try:
            after = ask(e, x, pass_over(ids, site, specimen.columns))
        finally:
            e.positions = kept
    parts = ((before.embedded, after.embedded), (before.layered, after.layered),
             (before.logits, after.logits))  # fmt: skip
    return all(float((a - b).abs().max()) < CLOSE for a, b in parts)


def injection(e: Encoding, site: str, specimen: Specimen) -> str:
    """Injection: ape if it adds vectors that depend on places and not on the content of tokens.

    It may add them to embeddings, to a layer's input or to queries and keys. mam if it changes
    attention otherwise: through the scores, a bias, the values, or by changing queries and keys
    depending on their content. Neither (-) if it replaces embeddings by something else.
    """
    hooks = set(hooks_of(type(e)))
    probe = _probe(e, site, specimen)
    kinds = {"ape"} if probe.adds else set()
    if hooks & IN_ATTENTION or probe.turns:
        kinds.add("mam")
    return _merge(kinds if not probe.replaces or "mam" not in kinds else set(), "both")


def learnable(e: Encoding) -> bool:
    """Learnable: it has parameters."""
    return any(True for _ in e.parameters())


def recurring(e: Encoding) -> bool:
    """Recurring: it acts in every layer, not at the bottom or the top of the stack alone."""
    return bool(IN_EVERY_LAYER & set(hooks_of(type(e))))


def unbound(e: Encoding) -> bool:
    """Unbound: no longest sequence, and no table that positions or clipped distances index."""
    return e.unbound


class _Probe(NamedTuple):
    asked: set[str]  # what the context was asked for
    adds: bool  # vectors that do not depend on content, somewhere
    turns: bool  # queries or keys, depending on their content
    replaces: bool  # embeddings, depending on their content


def _probe(e: Encoding, site: str, specimen: Specimen) -> _Probe:
    """Ask the same places about two contents."""
    ids = specimen.target if site == "decoder" else specimen.source
    context = pass_over(ids, site, specimen.columns)
    draw = torch.Generator().manual_seed(0)
    contents = torch.randn(2, *ids.shape, e.dims.dim, generator=draw)
    with torch.inference_mode():
        first, second = (ask(e, x, context) for x in contents)
    if e.streams > 1:
        return _Probe(context.asked, False, False, True)
    embeds = _adds(first.embedded, second.embedded, contents[0], contents[1])
    layers = _adds(first.layered, second.layered, contents[0], contents[1])
    heads = [
        _adds(a, b, first.plain, second.plain)
        for a, b in zip(first.projected[:2], second.projected[:2], strict=True)
    ]
    return _Probe(
        context.asked,
        "vectors" in (embeds, layers, *heads),
        "more" in heads,
        "more" in (embeds, layers),
    )


def _adds(first: Tensor, second: Tensor, x: Tensor, y: Tensor) -> str:
    """What was done to x and to y: nothing, `vectors` that are equal for both, or `more`."""
    if first.shape != x.shape:
        return "more"
    added, also = first - x, second - y
    if float((added - also).abs().max()) > CLOSE:
        return "more"
    return "vectors" if float(added.abs().max()) > CLOSE else ""


def _merge(kinds: set[str], several: str) -> str:
    kinds = kinds - {"-"}
    return "-" if not kinds else kinds.pop() if len(kinds) == 1 else several
