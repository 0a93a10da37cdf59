"""Attention by distance: how far each head looks, and where."""

from collections.abc import Sequence
from itertools import groupby

from nmt.compare.page.markup import Markup, bdi, box, nothing, section, tag
from nmt.compare.page.numbers import fixed
from nmt.compare.page.profiles import curves_of, draw
from nmt.compare.page.svg import picture, swatch
from nmt.compare.report import REACH, AttentionProfile, Report

CURVES = 1000  # drawn for single heads; in a larger report, the mean of each layer's heads
SHADES = 8  # of the heat table
SITES = {
    "encoder": "Encoder: from a source piece to the others",
    "decoder": "Decoder: from an output piece to those before it",
    "cross": "Cross-attention: from an output piece to the source",
}


def render(report: Report) -> Markup:
    """One panel for each system and bucket; the first is shown, the others are to be chosen."""
    title = "Attention by distance"
    if not report.profiles:
        return section("attention", title, nothing("Attention was not recorded."))
    panels: dict[tuple[int, str, str], list[AttentionProfile]] = {}
    for one in report.profiles:
        panels.setdefault((one.system, one.test, one.bucket), []).append(one)
    heads = len(report.profiles) <= CURVES
    shown = [
        _panel(report, key, profiles, heads, hidden=n > 0)
        for n, (key, profiles) in enumerate(panels.items())
    ]
    note = (
        "Distance is key minus query, in pieces: to the left of zero lies what came before. "
        "Tables: the mean of its absolute value, weighted by attention. Curves: the share of "
        "attention at each distance, all layers of a site to the same height; short strokes at the "
        f"edges stand for all from {REACH} pieces on. "
    )
    lines = "Each line is a head. " if heads else "Each line is the mean of a layer's heads. "
    return section(
        "attention",
        title,
        tag("p", note, lines, "Of each system's first run.", class_="note"),
        _controls(report, list(panels)),
        tag("p", "Nothing was recorded for this choice.", id="no-panel", hidden=True),
        shown,
    )


def _controls(report: Report, keys: Sequence[tuple[int, str, str]]) -> Markup:
    systems = [
        tag("option", report.systems[s].label, value=s) for s in dict.fromkeys(k[0] for k in keys)
    ]
    places = [
        tag("option", f"{test}, {bucket}", value=_place(test, bucket))
        for test, bucket in dict.fromkeys(k[1:] for k in keys)
    ]
    return tag(
        "div",
        tag("label", "System ", tag("select", systems, id="panel-system")),
        tag("label", "Length ", tag("select", places, id="panel-place")),
        class_="tool scripted",
    )


def _place(test: str, bucket: str) -> str:
    return f"{test}|{bucket}"


def _panel(
    report: Report,
    key: tuple[int, str, str],
    profiles: Sequence[AttentionProfile],
    heads: bool,
    hidden: bool,
) -> Markup:
    system, test, bucket = key
    label = report.systems[system].label
    sites: dict[str, list[AttentionProfile]] = {}
    for one in profiles:
        sites.setdefault(one.site, []).append(one)
    farthest = max(one.distance for one in profiles) or 1.0
    numbers = sorted({one.head for one in profiles})
    legend = [tag("li", swatch(h - 1, shape=False), f" head {h}") for h in numbers]
    return tag(
        "div",
        tag("h3", swatch(system), " ", bdi(label), ": ", bdi(test), ", ", bdi(bucket)),
        tag("ul", legend, class_="legend") if heads else None,
        [
            _site(site, f"{label}, {test}, {bucket}", sites[site], farthest, heads)
            for site in sorted(sites, key=lambda s: list(SITES).index(s) if s in SITES else 9)
        ],
        class_="panel",
        data_system=system,
        data_place=_place(test, bucket),
        hidden=hidden,
    )


def _site(
    site: str, whose: str, profiles: Sequence[AttentionProfile], farthest: float, heads: bool
) -> Markup:
    ordered = sorted(profiles, key=lambda p: (p.layer, p.head))
    layers = {n: list(group) for n, group in groupby(ordered, key=lambda p: p.layer)}
    curves = {n: curves_of(group, heads) for n, group in layers.items()}
    top = max(w for c in curves.values() for one in c for _, w in [*one.points, *one.ends]) or 1.0
    numbers = sorted({p.head for p in ordered})
    charts = []
    for n, group in layers.items():
        means = ", ".join(f"head {p.head}: {fixed(p.distance)}" for p in group)
        name = f"Attention by distance, {site}, layer {n}, {whose}"
        chart = draw(f"layer {n}", curves[n], group[0].distances, top)
        charts.append(picture(name, f"Mean distances: {means}.", *chart))
    return tag(
        "div",
        tag("h4", SITES.get(site, site)),
        _heat(site, whose, layers, numbers, farthest),
        tag("div", charts, class_="profiles"),
        class_="site",
    )


def _heat(
    site: str,
    whose: str,
    layers: dict[int, list[AttentionProfile]],
    heads: Sequence[int],
    farthest: float,
) -> Markup:
    """Layers down, heads across; a darker cell looks further away."""
    head = tag(
        "tr", tag("th", "Layer", scope="col"), [tag("th", f"h{h}", scope="col") for h in heads]
    )
    body = []
    for n, profiles in layers.items():
        by_head = {p.head: p.distance for p in profiles}
        cells = []
        for h in heads:
            distance = by_head.get(h)
            shade = None if distance is None else f"h{round(SHADES * distance / farthest)}"
            cells.append(tag("td", fixed(distance), class_=shade))
        body.append(tag("tr", tag("th", str(n), scope="row"), cells))
    label = f"Mean distance by layer and head, {site}, {whose}"
    table = tag("table", tag("thead", head), tag("tbody", body), class_="heat", aria_label=label)
    return box(label, table)
