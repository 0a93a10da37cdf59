"""The card of one encoding: all that its code says, and all that running it shows."""

import copy
import sys
import textwrap
from collections.abc import Iterator

from nmt import build
from nmt.checks import example
from nmt.config.catalog import Folders, chain_of, commented, family_of, summary
from nmt.config.settings import Settings
from nmt.encodings.registry import find
from nmt.errors import UserError
from nmt.exchange import ctranslate2_spec
from nmt.inspect import facts, parity, properties
from nmt.inspect.parity import full_pass, perturbed
from nmt.model.transformer import Transformer

NAME, WIDTH = 20, 100
DECODED = 20  # tokens of a target
CLOSE = 1e-5  # in float32, as a share of the largest number
TOKENS = 64  # of the sentences in which positions are looked at
REFERENCES = {"A": "absolute positions", "R": "distances", "B": "both", "-": "none"}
INJECTIONS = {
    "ape": "adds vectors of positions, whatever the content (ape)",
    "mam": "modifies attention (mam)",
    "both": "adds vectors of positions, and modifies attention",
    "-": "neither adds vectors of positions nor modifies attention",
}

Rows = Iterator[tuple[str, str]]  # the name of a fact, and the fact


def card(option: str, settings: Settings, folders: Folders = ()) -> str:
    """The card at the settings' size."""
    model = perturbed(build.shrunken(settings))
    lines = [option, f"  {summary('encoding', option, folders)}", "", *_docstrings(settings)]
    rows = [("family", family_of(option, folders)), *_survey(model, option), *_sites(model)]
    rows += [*_size(settings), *_lengths(model), *_trials(model)]
    rows += [("CTranslate2", exportable(model, settings))]
    for name, text in rows:
        indents = f"  {name:<{NAME}}", " " * (NAME + 2)
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=indents[0], subsequent_indent=indents[1],
            break_on_hyphens=False,
        )  # fmt: skip
    lines += ["", "  keys"]
    lines += [f"    {key:<36} {meaning}" for key, meaning in _keys(option, folders)]
    return "\n".join(lines) + "\n"


def _docstrings(settings: Settings) -> Iterator[str]:
    """Source and formula: the docstrings of each entry's module and class, each module once."""
    classes = [find(str(options.get("use", name))) for name, options in settings.encoding.items()]
    for cls in dict.fromkeys(classes):
        for text in (sys.modules[cls.__module__].__doc__ or "", cls.__doc__ or ""):
            yield from (f"  {line.strip()}".rstrip() for line in text.strip().split("\n"))
            yield ""


def _survey(model: Transformer, option: str) -> Rows:
    columns = facts.facts_of(model, option)
    layers = "every layer" if columns.recurring else "at the input or top alone"
    yield "reference point", REFERENCES[columns.reference]
    yield "injection", INJECTIONS[columns.injection]
    yield "learnable", _yes_or_no(columns.learnable)
    yield "recurring", _yes_or_no(columns.recurring, layers)


def _sites(model: Transformer) -> Rows:
    """The hooks of each site, and whether the fused kernel serves them."""
    for name, site in model.sites.items():
        if site.entries:
            hooks = dict.fromkeys(h for e in site for h in e.hooks)
            stack = model.encoder if name == "encoder" else model.decoder
            slow = [str(n) for n in range(stack.count) if not site.fusible(n)]
            some = f" in layers {', '.join(slow)}" if len(slow) < stack.count else ""
            fused = f"no fused attention{some}" if slow else "fused attention"
            yield f"hooks, {name}", f"{', '.join(hooks) or 'none'} ({fused})"


def _size(settings: Settings) -> Rows:
    counts, size = facts.parameter_counts(settings), settings.model
    by_site = zip(facts.SITES, counts, strict=True)
    sites = ", ".join(f"{site} {facts.format_counts([count])}" for site, count in by_site)
    layers = f"{size.encoder_layers}+{size.decoder_layers} layers"
    model = f"a model of {size.dim} x {layers} ({sites})"
    yield "parameters", f"{facts.format_counts(counts)} in {model}"


def _lengths(model: Transformer) -> Rows:
    limit, other = model.source_limit, model.target_limit
    yield "longest source", _limit(limit)
    if other != limit:
        yield "longest target", _limit(other)
    if model.needs_lengths:
        yield "needs", "the desired length of each output"
    if model.columns:
        yield "reads columns", ", ".join(sorted(model.columns))


def _trials(model: Transformer) -> Rows:
    """Checks on a model of a few dimensions."""
    yield "interpolation", interpolation(copy.deepcopy(model))
    moved = properties.shift(model)
    only = "not asked: it has distances only"
    yield "shift invariant", only if moved is None else _difference(moved, moved < CLOSE)
    moved = properties.reordering(model)
    yield "order in encoder", _difference(moved, moved >= CLOSE)
    for site, encodings in model.sites.items():
        if (why := encodings.breaks_shift_invariance) is not None:
            yield f"composed, {site}", why
    (decoded,) = parity.measure(model, DECODED, ["float32"], conditions=parity.CONDITIONS[:1])
    yield "cached decoding", f"{'exact' if decoded.passed else 'WRONG'}: {decoded.finding}"


def interpolation(model: Transformer) -> str:
    """Whether positions may be scaled; changes the model."""
    try:
        model.scale_positions(0.5)
    except ValueError as e:
        return f"no: {str(e).split(', because ')[-1]}"
    finite = full_pass(model, example.text(model)).isfinite().all()
    return "yes: positions may be any real numbers" if finite else "no: not finite"


def _difference(moved: float, holds: bool) -> str:
    return _yes_or_no(holds, f"largest difference {moved:.2g}")


def exportable(model: Transformer, settings: Settings) -> str:
    """Whether nmt-export can write it for CTranslate2; if not, why."""
    try:
        ctranslate2_spec.positions(build.shrunken(settings), model, TOKENS)
    except UserError as error:
        return f"no: {error}"
    return "nmt-export --to ctranslate2 writes it, and compares"


def _keys(option: str, folders: Folders) -> Rows:
    """The keys of an option's file, then those of the files that it builds on, each once."""
    keys: dict[str, str] = {}
    for name in reversed(chain_of("encoding", option, folders)):
        for key, default, meaning in commented("encoding", name, folders):
            keys.setdefault(key, f"{meaning} [{default}]")
    yield from keys.items()


def _limit(length: int | None) -> str:
    return "any" if length is None else f"{length:,}"


def _yes_or_no(holds: bool, why: str = "") -> str:
    return ("yes" if holds else "no") + (f": {why}" if why else "")
