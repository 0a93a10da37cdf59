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

from nmt.compare.report import PaperTable, ScoredTest

METRICS = {"BLEU-moses": "BLEU", "TER-moses": "TER"}  # ours -> the paper's name for it


@cache
def tables() -> dict[str, Any]:
    """By name (`Table 2`; Table 1 has one for each language pair): `test`, `pairs`, `systems`."""
    return json.loads(Path(__file__).with_name("published.json").read_bytes())["tables"]


def table_of(name: str, test: str) -> str | None:
    """The table that a name means, as `Table 2`; of `Table 1` the test set decides which part."""
    known = [table for table in tables() if table == name or table.startswith(f"{name},")]
    if len(known) == 1:
        return known[0]
    return next((table for table in known if tables()[table]["test"] == test), None)


def cell(table: str, system: str | None, bucket: str, metric: str) -> float | None:
    """One number, the metric named as here; None where the paper has none."""
    buckets = tables()[table]["systems"].get(system, {})
    return buckets.get(bucket, {}).get(METRICS.get(metric, ""))


def with_published(scored: ScoredTest, table: PaperTable, keys: Sequence[str | None]) -> ScoredTest:
    """The test with the paper's numbers next to the scores of a table's systems.

    `keys`: by system, its name in the paper. Where the buckets are not the paper's there is
    nothing to compare, and the test stays as it is.
    """
    name = table_of(table.name, scored.name)
    if name is None or not set(tables()[name]["pairs"]) <= {row.name for row in scored.rows}:
        return scored
    rows = []
    for row in scored.rows:
        cells = list(row.cells)
        for s in table.systems:
            scores = {
                metric: replace(score, published=cell(name, keys[s], row.name, metric))
                for metric, score in cells[s].scores.items()
            }
            cells[s] = replace(cells[s], scores=scores)
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows)
