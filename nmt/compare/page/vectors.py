"""Learned vectors per distance, beside sinusoids of the same distances."""

from itertools import groupby

from nmt.compare.page import png
from nmt.compare.page.markup import Markup, bdi, nothing, section, tag
from nmt.compare.page.svg import swatch
from nmt.compare.report import DistanceVectors, Report


def render(report: Report) -> Markup:
    """For each system: what sinusoids look like, then its own tables."""
    title = "Learned vectors beside sinusoids"
    if not report.vectors:
        said = "No system has learned vectors per distance."
        return section("vectors", title, nothing(said))
    groups = groupby(report.vectors, key=lambda v: (v.system, v.distances, v.sinusoids))
    scale = tag("img", src=png.uri([[i / 20 for i in range(-20, 21)]]), alt="", class_="ramp")
    note = (
        "Each picture: the cosine between the vectors of two distances, from the most negative "
        "distance at the top left to the most positive at the bottom right. A blue diagonal "
        "alone: every distance has a direction of its own; broad bands: neighbours look alike."
    )
    return section(
        "vectors",
        title,
        tag("p", note, class_="note"),
        tag("p", "\u22121 ", scale, " +1", class_="scale"),
        [_group(report, list(group)) for _, group in groups],
    )


def _group(report: Report, tables: list[DistanceVectors]) -> Markup:
    first = tables[0]
    label = report.systems[first.system].label
    maps = [_map("sinusoids", first, first.sinusoids, label)]
    maps += [_map(table.title, table, table.similarity, label) for table in tables]
    heading = tag("h3", swatch(first.system), " ", bdi(label))
    return tag("div", heading, tag("div", maps, class_="maps"), class_="part")


def _map(title: str, table: DistanceVectors, matrix: list[list[float]], label: str) -> Markup:
    low, high = table.distances[0], table.distances[-1]
    written = f"{low} to {high}".replace("-", "\u2212")
    alt = f"{title} of {label}: cosine between distances {written}. {_said(table, matrix)}"
    image = tag("img", src=png.uri(matrix), alt=alt, class_="map")
    return tag("figure", image, tag("figcaption", bdi(title), " ", tag("small", written)))


def _said(table: DistanceVectors, matrix: list[list[float]]) -> str:
    """The picture in words: how alike neighbours and opposites are."""
    n = len(matrix)
    if n < 2:
        return ""
    near = sum(matrix[i][i + 1] for i in range(n - 1)) / (n - 1)
    mirror = sum(matrix[i][n - 1 - i] for i in range(n // 2)) / (n // 2)
    return f"Mean cosine of neighbours {near:.2f}, of opposite distances {mirror:.2f}."
