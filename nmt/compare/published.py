"""The numbers that Rosendahl et al. (2019) print in their Tables 1 to 4, by table, system, bucket.

The paper's BLEU is cased and of tokenised text, which is `BLEU-moses` here, not sacreBLEU's usual
BLEU; its TER is TERCom's of such text, `TER-moses`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from nmt.compare.report import PaperTable, ScoredTest, SystemScores

METRICS = {"BLEU-moses": "BLEU", "TER-moses": "TER"}  # ours -> the paper's name for it


@cache
def paper() -> dict[str, Any]:
    """All of published.json: `paper`, `metrics`, `lengths`, `tables`."""
    return json.loads(Path(__file__).with_name("published.json").read_bytes())


def tables() -> list[str]:
    """The names of the tables: `Table 2`; Table 1 has one for each language pair."""
    return list(paper()["tables"])


def table_of(name: str, test: str) -> str | None:
    """The table that a name means, as `Table 2`; of `Table 1` the test set decides which part."""
    known = [table for table in tables() if table == name or table.startswith(f"{name},")]
    if len(known) == 1:
        return known[0]
    return next((table for table in known if test_of(table) == test), None)


def test_of(table: str) -> str:
    """The test set of a table, as the paper calls it."""
    return paper()["tables"][table]["test"]


def systems(table: str) -> list[str]:
    """The systems of a table, in the paper's order."""
    return list(paper()["tables"][table]["systems"])


def pairs(table: str) -> dict[str, int]:
    """How many test pairs each bucket has in the paper."""
    return dict(paper()["tables"][table]["pairs"])


def cell(table: str, system: str, bucket: str, metric: str) -> float | None:
    """One number, the metric named as here; None where the paper has none."""
    buckets = paper()["tables"][table]["systems"].get(system, {})
    return buckets.get(bucket, {}).get(METRICS.get(metric, ""))


def fitting(table: str, buckets: Sequence[str]) -> bool:
    """Tell whether a report has all of the table's buckets, so that its cells can be compared."""
    return set(pairs(table)) <= set(buckets)


def with_published(scored: ScoredTest, table: PaperTable, keys: Sequence[str | None]) -> ScoredTest:
    """The test with the paper's numbers next to the scores of a table's systems.

    `keys`: by system, its name in the paper. Where the buckets are not the paper's there is
    nothing to compare, and the test stays as it is.
    """
    name = table_of(table.name, scored.name)
    if name is None or not fitting(name, [row.name for row in scored.rows]):
        return scored
    rows = []
    for row in scored.rows:
        cells = list(row.cells)
        for s in table.systems:
            if key := keys[s]:
                cells[s] = _with_published(cells[s], name, key, row.name)
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)


def _with_published(cells: SystemScores, table: str, system: str, bucket: str) -> SystemScores:
    scores = dict(cells.scores)
    for metric, score in scores.items():
        value = cell(table, system, bucket, metric)
        if value is not None:
            scores[metric] = replace(score, published=value)
    return replace(cells, scores=scores)
