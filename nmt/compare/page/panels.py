"""Attention by distance: a panel for each system and bucket, a part of it for each site."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from nmt.compare.page.profiles import curves_of, draw
from nmt.compare.page.svg import Chart
from nmt.compare.report import SITES, AttentionProfile, Report

CURVES = 1000  # drawn for single heads; in a larger report, the mean of each layer's heads
SHADES = 8  # of the heat table, and none; a darker cell attends further away


class SitePanel(NamedTuple):
    """The attention of one site."""

    site: str
    layers: dict[int, dict[int, tuple[float, int]]]  # by layer and head: mean distance, and shade
    heads: list[int]
    charts: list[Chart]  # by layer


class AttentionPanel(NamedTuple):
    """The attention of one system in one bucket of one test."""

    system: int
    test: str
    bucket: str
    heads: list[int]
    sites: list[SitePanel]

    @property
    def place(self) -> str:
        """What the chooser of lengths calls it."""
        return f"{self.test}|{self.bucket}"


def single_heads(report: Report) -> bool:
    """Whether each head has a curve of its own."""
    return len(report.profiles) <= CURVES


def attention_panels(report: Report) -> list[AttentionPanel]:
    """All panels, in the order of the profiles."""
    grouped: dict[tuple[int, str, str], list[AttentionProfile]] = {}
    for profile in report.profiles:
        grouped.setdefault((profile.system, profile.test, profile.bucket), []).append(profile)
    return [_panel(report, *key, profiles) for key, profiles in grouped.items()]


def _panel(
    report: Report, system: int, test: str, bucket: str, profiles: Sequence[AttentionProfile]
) -> AttentionPanel:
    farthest = max(profile.distance for profile in profiles) or 1.0
    whose = f"{report.systems[system].label}, {test}, {bucket}"
    by_site: dict[str, list[AttentionProfile]] = {}
    for profile in profiles:
        by_site.setdefault(profile.site, []).append(profile)
    sites = [
        _site(site, whose, by_site[site], farthest, single_heads(report))
        for site in sorted(by_site, key=lambda s: SITES.index(s) if s in SITES else len(SITES))
    ]
    heads = sorted({profile.head for profile in profiles})
    return AttentionPanel(system, test, bucket, heads, sites)


def _site(
    site: str, whose: str, profiles: Sequence[AttentionProfile], farthest: float, single: bool
) -> SitePanel:
    ordered = sorted(profiles, key=lambda p: (p.layer, p.head))
    layers = {n: list(group) for n, group in groupby(ordered, key=lambda p: p.layer)}
    curves = {n: curves_of(group, single) for n, group in layers.items()}
    drawn = [curve for layer in curves.values() for curve in layer]
    top = max(w for curve in drawn for _, w in [*curve.points, *curve.ends]) or 1.0
    charts = [
        draw(f"Attention by distance, {site}, layer {n}, {whose}", group, curves[n], top)
        for n, group in layers.items()
    ]
    cells = {
        n: {p.head: (p.distance, round(SHADES * p.distance / farthest)) for p in group}
        for n, group in layers.items()
    }
    return SitePanel(site, cells, sorted({p.head for p in ordered}), charts)
