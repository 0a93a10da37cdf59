"""A report as tab-separated values: one number a line, for spreadsheets and plots."""

from collections.abc import Iterator
from typing import Any

from nmt.compare.notation import SIGNS, over_runs, sign
from nmt.compare.report import BucketScores, ComparedSystem, Report, Score, ScoredTest, SystemScores

HEADING = (
    *("test", "bucket", "shortest", "longest", "pairs", "system", "runs", "unseen", "metric"),
    *("mean", "deviation", "low", "high", "p", "published", "difference", "signature"),
)
TRAINING = "training"  # stands for a test where the numbers are of training


def tsv(report: Report) -> str:
    """One line for each test, bucket, system and metric, under a heading; empty: no such number.

    `low` and `high` bound the 95% interval; `unseen` says that all sources of the bucket are
    longer than any in the system's training. A test called `training` holds what is known of the
    systems themselves. Numbers are not rounded.
    """
    numbers = [line for test in report.tests for line in _test(report, test)]
    numbers += [line for system in report.systems for line in _system(system)]
    lines = ["\t".join(_plain(line.get(key)) for key in HEADING) for line in numbers]
    return "\n".join(["\t".join(HEADING), *lines]) + "\n"


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).split())  # a tab or line end in a name would break the table


def _test(report: Report, test: ScoredTest) -> Iterator[dict[str, Any]]:
    for row in test.rows:
        for system, cell in zip(report.systems, row.cells, strict=True):
            about = _about(test, row, system, cell)
            for name, score in cell.scores.items():
                signature = test.metric(name).signature
                yield {**about, "metric": name, "signature": signature, **_score(score)}
            for name, value in _others(cell).items():
                if value is not None:
                    yield {**about, "metric": name, "mean": value}


def _about(
    test: ScoredTest, row: BucketScores, system: ComparedSystem, cell: SystemScores
) -> dict[str, Any]:
    return {
        "test": test.name,
        "bucket": row.name,
        "shortest": row.low,
        "longest": row.high,
        "pairs": row.pairs,
        "system": system.label,
        "runs": len(system.runs),
        "unseen": cell.beyond,
    }


def _score(score: Score) -> dict[str, Any]:
    difference = None if score.published is None else score.mean - score.published
    return {**vars(score), "difference": difference}


def _others(cell: SystemScores) -> dict[str, float | None]:
    values = {"length ratio": cell.ratio, "perplexity of the references": cell.perplexity}
    for name, title in SIGNS.items():
        values[title] = sign(cell, name)
        if name == "repeated":
            values[f"{title} of the references"] = sign(cell, "repeated_reference")
    return values


def _system(system: ComparedSystem) -> Iterator[dict[str, Any]]:
    about = {"test": TRAINING, "system": system.label, "runs": len(system.runs)}
    for name, value in (
        ("parameters", system.parameters),
        ("parameters of the encodings", system.encoding_parameters),
        ("longest source", system.longest_trained),
    ):
        if value is not None:
            yield {**about, "metric": name, "mean": value}
    for name, figure in (
        ("updates", "step"),
        ("dev perplexity", "dev_perplexity"),
        ("seconds", "seconds"),
        ("tokens per second", "tokens_per_second"),
    ):
        mean, deviation = over_runs(system, figure)
        if mean is not None:
            yield {**about, "metric": name, "mean": mean, "deviation": deviation}
