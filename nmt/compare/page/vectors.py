"""Learned vectors per distance as pictures, beside sinusoids of the same distances."""

from itertools import groupby
from typing import NamedTuple

from nmt.compare.page import heat
from nmt.compare.page.text import MINUS
from nmt.compare.report import DistanceCosines, Report


class HeatMap(NamedTuple):
    """The cosines of one table."""

    title: str
    distances: str  # `-16 to 16`
    uri: str
    about: str  # the picture in words


def vector_maps(report: Report) -> list[tuple[int, list[HeatMap]]]:
    """For each system: what sinusoids look like, then its own tables."""
    groups = groupby(report.vectors, key=lambda v: (v.system, v.distances, v.sinusoids))
    return [(key[0], _maps(report, list(tables))) for key, tables in groups]


def _maps(report: Report, tables: list[DistanceCosines]) -> list[HeatMap]:
    matrices = [("sinusoids", tables[0].sinusoids), *((t.title, t.similarity) for t in tables)]
    label = report.systems[tables[0].system].label
    low, high = tables[0].distances[0], tables[0].distances[-1]
    distances = f"{low} to {high}".replace("-", MINUS)
    return [
        HeatMap(
            title,
            distances,
            heat.uri(matrix),
            f"{title} of {label}: cosine between distances {distances}. {_in_words(matrix)}",
        )
        for title, matrix in matrices
    ]


def _in_words(matrix: list[list[float]]) -> str:
    """How alike neighbours and opposites are."""
    n = len(matrix)
    if n < 2:
        return ""
    near = sum(matrix[i][i + 1] for i in range(n - 1)) / (n - 1)
    mirror = sum(matrix[i][n - 1 - i] for i in range(n // 2)) / (n // 2)
    return f"Mean cosine of neighbours {near:.2f}, of opposite distances {mirror:.2f}."


def ramp() -> str:
    """The colours from -1 to 1."""
    return heat.uri([[i / 20 for i in range(-20, 21)]])
