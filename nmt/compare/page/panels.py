"""Attention by distance: a panel for each system and bucket, a part of it for each site."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from nmt.compare.page.charts import Curve, curve_chart
from nmt.compare.page.svg import Chart
from nmt.compare.report import SITES, AttentionProfile, Report

SHADES = 8  # of the heat table, and none; a darker cell attends further away


class SitePanel(NamedTuple):
    """The attention of one site."""

    site: str
    layers: dict[int, dict[int, tuple[float, int]]]  # by layer and head: mean distance, and shade
    heads: list[int]
    chart: Chart  # share of attention by distance, a curve for each layer


class AttentionPanel(NamedTuple):
    """The attention of one system in one bucket of one test."""

    system: int
    test: str
    bucket: str
    layers: list[int]
    sites: list[SitePanel]

    @property
    def place(self) -> str:
        """The value of the panel in the length menu."""
        return f"{self.test}|{self.bucket}"


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
    order = sorted(profiles, key=lambda p: (SITES.index(p.site), p.layer, p.head))
    sites = [
        _site_panel(site, whose, list(group), farthest)
        for site, group in groupby(order, key=lambda p: p.site)
    ]
    layers = sorted({profile.layer for profile in profiles})
    return AttentionPanel(system, test, bucket, layers, sites)


def _site_panel(
    site: str, whose: str, profiles: Sequence[AttentionProfile], farthest: float
) -> SitePanel:
    """The heads of a site, in the order of layers and heads."""
    layers = {n: list(group) for n, group in groupby(profiles, key=lambda p: p.layer)}
    curves = []
    for n, group in layers.items():
        by_distance = zip(*(profile.weights for profile in group), strict=True)
        curves.append(Curve(n - 1, group[0].distances, list(map(fmean, by_distance))))
    name = f"Attention by distance, {site}, {whose}"
    about = "A curve for each layer, the mean of its heads."
    cells = {
        n: {p.head: (p.distance, round(SHADES * p.distance / farthest)) for p in group}
        for n, group in layers.items()
    }
    chart = curve_chart(name, about, curves, "key minus query, in pieces", percent=True)
    return SitePanel(site, cells, sorted({p.head for p in profiles}), chart)
