"""The card of one encoding: all that its code says, and all that running it shows."""

import sys
import textwrap
from collections.abc import Iterator

from nmt import build
from nmt.config import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.composition import hooks_of
from nmt.encodings.lookup import find
from nmt.encodings.relative import Relative
from nmt.inspect import checks, cost, facts
from nmt.inspect.specimen import Specimen, entries, small
from nmt.overrides.options import Folders, encoding_keys, family_of, path_of, summary

NAME, WIDTH = 20, 100
MEANT = {"A": "absolute positions", "R": "distances", "B": "both", "-": "none"}
INJECTED = {
    "ape": "adds vectors of positions, whatever the content (ape)",
    "mam": "modifies attention (mam)",
    "both": "adds vectors of positions, and modifies attention",
    "-": "neither adds vectors of positions nor modifies attention",
}
SITES = ("encoder", "decoder", "cross")


def card(option: str, settings: Settings, timed: bool, folders: Folders = ()) -> str:
    """The card at the settings' size; `timed`: measure the cost, too (some seconds)."""
    specimen = small(settings)
    lines = [option, f"  {summary('encoding', option, folders)}", ""]
    lines += _documents(settings)
    lines += _row("family", family_of(option, folders))
    lines += _columns(facts.facts_of(specimen, option))
    lines += _hooks(specimen)
    lines += _parameters(settings)
    lines += _length(settings, specimen)
    lines += _tried(specimen)
    lines += _row("CTranslate2", exportable(specimen))
    if timed:
        lines += _cost(settings)
    lines += ["", "  keys"]
    lines += [f"    {key:<36} {rest}" for key, rest in _keys(option, settings, folders)]
    return "\n".join(lines) + "\n"


def _keys(option: str, settings: Settings, folders: Folders) -> Iterator[tuple[str, str]]:
    """The keys of an option's file, then those of the files that it builds on, each once."""
    seen = set()
    for name in (option, *settings.encoding):
        if not path_of("encoding", name, folders).exists():
            continue  # an entry that has no file of its own name
        for key, default, doc in encoding_keys(name, folders):
            if key not in seen:
                seen.add(key)
                yield key, f"{doc} [{default}]"


def _documents(settings: Settings) -> Iterator[str]:
    """Source and formula: the docstrings of each entry's module and class, each module once."""
    seen = set()
    for name, options in settings.encoding.items():
        cls = find(str(options.get("use", name)))
        if cls in seen:
            continue
        seen.add(cls)
        for text in (sys.modules[cls.__module__].__doc__, cls.__doc__):
            yield from _indent(text or "")
            yield ""


def _columns(known: facts.Facts) -> Iterator[str]:
    yield from _row("reference point", MEANT[known.reference])
    yield from _row("injection", INJECTED[known.injection])
    yield from _row("learnable", _yes(known.learnable))
    yield from _row("recurring", _yes(known.recurring, "every layer", "at the input or top alone"))
    yield from _row(
        "unbound", _yes(known.unbound, "", "a longest sequence, a table, or clipped distances")
    )


def _hooks(specimen: Specimen) -> Iterator[str]:
    """The hooks of each site; the fused kernel serves what needs neither scores nor values."""
    for name, site in specimen.model.sites.items():
        hooks = {h: None for e in site.entries if isinstance(e, Encoding) for h in _of(e)}
        if site.entries:
            fused = "fused attention" if site.fusible else "no fused attention"
            yield from _row(f"hooks, {name}", f"{', '.join(hooks) or 'none'} ({fused})")


def _of(e: Encoding) -> list[str]:
    return hooks_of(type(e))


def _parameters(settings: Settings) -> Iterator[str]:
    counts = counted(settings)
    size = settings.model
    each = ", ".join(f"{site} {n}" for site, n in zip(SITES, map(said, counts), strict=True))
    whole = said((sum(n for n, _ in counts), sum(words for _, words in counts)))
    yield from _row(
        "parameters",
        f"{whole} in a model of {size.dim} x {size.encoder_layers}+{size.decoder_layers} layers "
        f"({each})",
    )


def counted(settings: Settings, option: str = "") -> list[tuple[int, int]]:
    """Parameters of each site: how many, and how many more for each word type of its side.

    `option`: of its own entry alone, if one bears its name.
    """
    few, more = (_sites(settings, vocab, option) for vocab in (8, 9))
    return [(n - 8 * (m - n), m - n) for n, m in zip(few, more, strict=True)]


def _sites(settings: Settings, vocab: int, option: str) -> list[int]:
    model = build.outline(settings, vocab, vocab)
    there = facts.own(model, option)
    return [sum(cost.parameters(e) for s, e in there if s == site) for site in SITES]


def said(count: tuple[int, int]) -> str:
    """12,345 or 12,345 + 1,024 V, V being the size of the vocabulary."""
    fixed, words = count
    if not words:
        return f"{fixed:,}"
    return f"{fixed:,} + {words:,} V" if fixed else f"{words:,} V"


def _length(settings: Settings, specimen: Specimen) -> Iterator[str]:
    limit = specimen.model.source_limit
    told = checks.beyond(specimen, limit)
    yield from _row("longest source", f"{'any' if limit is None else f'{limit:,}'}; {told}")
    if (other := specimen.model.target_limit) != limit:
        yield from _row("longest target", "any" if other is None else f"{other:,}")
    if specimen.model.needs_lengths:
        yield from _row("needs", "the desired length of each output")
    if names := sorted(specimen.model.columns):
        yield from _row("reads columns", ", ".join(names))
    stretched = checks.interpolation(small(settings))
    yield from _row("interpolation", _yes(stretched.holds, stretched.said, stretched.said))


def _tried(specimen: Specimen) -> Iterator[str]:
    """What a model of a few dimensions shows."""
    shifted, shuffled = checks.shift(specimen), checks.permutation(specimen)
    if shifted is None:
        yield from _row("shift invariant", "not asked: it has distances only")
    else:
        yield from _row("shift invariant", _yes(shifted.holds, shifted.said, shifted.said))
    yield from _row("order in encoder", _yes(not shuffled.holds, shuffled.said, shuffled.said))
    for site, encodings in specimen.model.sites.items():
        if (why := encodings.at_odds) is not None:
            yield from _row(f"composed, {site}", why)
    exact = checks.cached(specimen)
    yield from _row("cached decoding", f"{'exact' if exact.holds else 'WRONG'}: {exact.said}")


def exportable(specimen: Specimen) -> str:
    """Whether CTranslate2 has a form for it, as far as the code tells.

    Its relative_position_keys and _values are the tables of `relative` alone, shared by heads:
    same code, same formula. Its position_encodings are vectors added at the input that depend
    on nothing but the token's index.
    """
    inside = [e for site, e in entries(specimen.model) if site != "cross"]
    across = [e for site, e in entries(specimen.model) if site == "cross" and _of(e)]
    if across or specimen.model.columns or specimen.model.needs_lengths or not inside:
        return "no form for it"
    if all(_is_shaw(e) for e in inside):
        return "as relative_position_keys and _values"
    if {h for e in inside for h in _of(e)} == {"embed"}:
        probed = {facts.injection(e, site, specimen) for site, e in entries(specimen.model)}
        if probed == {"ape"}:
            return "as a table of position_encodings, up to a longest sentence"
    return "unknown; no test here compares it"


def _is_shaw(e: Encoding) -> bool:
    tables = [getattr(e, name, None) for name in ("key_table", "value_table")]
    return (type(e).scores, type(e).values) == (Relative.scores, Relative.values) and all(
        t is None or t.shape[1] == 1 for t in tables
    )


def _cost(settings: Settings) -> Iterator[str]:
    model = build.transformer(settings, cost.VOCAB, cost.VOCAB)
    price = cost.cost_of(model, settings.model)
    yield from _row(
        "time",
        f"x {price.ratio:.2f} [{price.low:.2f}, {price.high:.2f}] of plain attention's "
        f"{1000 * price.plain:.0f} ms; {price.where}, forward and backward, median and quartiles "
        f"of {price.pairs} interleaved pairs, one CPU thread",
    )
    yield from _row(
        "memory",
        f"{_mib(price.bytes)} kept for the backward pass, plain attention "
        f"{_mib(price.plain_bytes)} (the same sublayers)",
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _yes(holds: bool, why: str = "", why_not: str = "") -> str:
    why = why if holds else why_not
    return ("yes" if holds else "no") + (f": {why}" if why else "")


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {name:<{NAME}}",
        subsequent_indent=" " * (NAME + 2),
        break_on_hyphens=False,
    )


def _indent(text: str) -> list[str]:
    return [f"  {line.strip()}".rstrip() for line in text.strip().split("\n")]
