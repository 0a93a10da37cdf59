"""The card of one encoding: all that its code says, and all that running it shows."""

import copy
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial

from nmt import build
from nmt.checks import example, parity
from nmt.checks.example import build_perturbed, full_pass
from nmt.checks.properties import ROUNDING, reordering, shift
from nmt.config.catalog import Folders, chain_of, family_of, read_comments, summary
from nmt.config.settings import Settings
from nmt.encodings.registry import SITES, find
from nmt.model.transformer import Transformer

NAME = 20  # columns of a line
DECODED = 20  # tokens of a target
INDENT = " " * (NAME + 2)
_wrap = partial(textwrap.fill, width=100, subsequent_indent=INDENT, break_on_hyphens=False)

Rows = Iterator[tuple[str, str]]  # the name of a fact, and the fact


def card(
    option: str, settings: Settings, folders: Folders = (), more: Mapping[str, str] | None = None
) -> str:
    """The card at the settings' size, with `more` facts by their names."""
    model = build_perturbed(build.shrink(settings))
    rows = {"family": family_of(option, folders), **dict(_structure(model, settings))}
    rows |= {**dict(_measurements(model)), **(more or {})}
    lines = [option, f"  {summary('encoding', option, folders)}", "", *_docstrings(settings)]
    lines += [_wrap(text, initial_indent=f"  {name:<{NAME}}") for name, text in rows.items()]
    keys: dict[str, str] = {}  # of the option's file, then of those that it builds on
    for part in reversed(chain_of("encoding", option, folders)):
        for key, default, meaning in read_comments("encoding", part, folders):
            keys.setdefault(key, f"    {key:<36} {meaning} [{default}]")
    return "\n".join([*lines, "", "  keys", *keys.values()]) + "\n"


def _docstrings(settings: Settings) -> Iterator[str]:
    """Source and formula: the docstrings of each entry's module and class, each module once."""
    classes = [find(str(options.get("use", name))) for name, options in settings.encoding.items()]
    for cls in dict.fromkeys(classes):
        for text in (sys.modules[cls.__module__].__doc__ or "", cls.__doc__ or ""):
            yield from (f"  {line.strip()}".rstrip() for line in text.strip().split("\n"))
            yield ""


def _structure(model: Transformer, settings: Settings) -> Rows:
    """Hooks by site, and whether the fused kernel serves them; parameters, limits and columns."""
    for name, site in model.sites.items():
        if site.entries:
            hooks = dict.fromkeys(h for e in site for h in e.hooks)
            stack = model.encoder if name == "encoder" else model.decoder
            slow = [str(n) for n in range(stack.count) if not site.fusible(n)]
            some = f" in layers {', '.join(slow)}" if len(slow) < stack.count else ""
            fused = f"no fused attention{some}" if slow else "fused attention"
            yield f"hooks, {name}", f"{', '.join(hooks) or 'none'} ({fused})"
    yield "parameters", _count_parameters(settings)
    limits = ["any" if n is None else f"{n:,}" for n in (model.source_limit, model.target_limit)]
    yield "longest source", limits[0]
    if limits[1] != limits[0]:
        yield "longest target", limits[1]
    if model.needs_lengths:
        yield "needs", "the desired length of each output"
    if model.columns:
        yield "reads columns", ", ".join(sorted(model.columns))


def _count_parameters(settings: Settings) -> str:
    """12,345 or 12,345 + 1,024 V, V being the size of the vocabulary; all, and of each site."""
    few, more = dict.fromkeys(SITES, 0), dict.fromkeys(SITES, 0)
    for counts, vocab in ((few, 8), (more, 9)):
        for e in build.meta_model(settings, vocab, vocab).entries:
            counts[e.dims.site] += sum(p.numel() for p in e.parameters())

    def count(*sites: str) -> str:
        per_word = sum(more[site] - few[site] for site in sites)
        fixed = sum(few[site] for site in sites) - 8 * per_word
        parts = [f"{fixed:,}"] * (fixed > 0 or not per_word) + [f"{per_word:,} V"] * (per_word > 0)
        return " + ".join(parts)

    size, by_site = settings.model, ", ".join(f"{site} {count(site)}" for site in SITES)
    layers = f"{size.encoder_layers}+{size.decoder_layers} layers"
    return f"{count(*SITES)} in a model of {size.dim} x {layers} ({by_site})"


def _measurements(model: Transformer) -> Rows:
    """Figures of a model of a few dimensions."""

    def answer(yes: bool, moved: float) -> str:
        return f"{'yes' if yes else 'no'}: largest difference {moved:.2g}"

    yield "interpolation", interpolation(copy.deepcopy(model))
    if (moved := shift(model)) is None:
        yield "shift invariant", "not measured: it has distances only"
    else:
        yield "shift invariant", answer(moved < ROUNDING, moved)
    moved = reordering(model)
    yield "order in encoder", answer(moved >= ROUNDING, moved)
    (decoded,) = parity.measure(model, DECODED, ["float32"], ["token by token"])
    yield "cached decoding", f"{'exact' if decoded.passed else 'WRONG'}: {decoded.finding}"


def interpolation(model: Transformer) -> str:
    """Whether positions may be scaled; changes the model."""
    try:
        model.scale_positions(0.5)
    except ValueError as e:
        return f"no: {str(e).split(', because ')[-1]}"
    finite = full_pass(model, example.text(model)).isfinite().all()
    return "yes: positions may be any real numbers" if finite else "no: not finite"
