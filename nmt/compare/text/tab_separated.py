"""A report as tab-separated values: one number a line, for spreadsheets and plots."""

from collections.abc import Iterator
from typing import Any

from nmt.compare.notation import OF_LOSSES, OF_PARTS, further_figures, of_part, over_runs
from nmt.compare.report import ComparedSystem, Report, ScoredTest

HEADING = (
    *("test", "bucket", "shortest", "longest", "pairs", "system", "runs", "unseen", "metric"),
    *("mean", "deviation", "low", "high", "p", "published", "difference", "signature"),
)
TRAINING = "training"  # stands for a test where the numbers are of training


def tsv(report: Report) -> str:
    """One line for each test, bucket, system and metric, under a heading; empty: no such number.

    `low` and `high` bound the 95% interval; `unseen` says that all of the bucket are longer
    than any in the system's training. A test called `training` holds what is known of the
    systems themselves. Numbers are not rounded.
    """
    lines = [
        HEADING,
        *([_as_cell(number.get(key)) for key in HEADING] for number in _numbers(report)),
    ]
    return "".join("\t".join(line) + "\n" for line in lines)


def _as_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "" if value is None else str(value)
    return " ".join(text.split())  # a tab or line end in a name would break the table


def _numbers(report: Report) -> Iterator[dict[str, Any]]:
    """The cells of each line, by column."""
    for test in report.tests:
        for row in test.rows:
            bucket = {"bucket": row.name, "shortest": row.low, "longest": row.high}
            for system, cell in zip(report.systems, row.cells, strict=True):
                about = {**_about(system, test.name), **bucket, "pairs": row.pairs}
                about["unseen"] = cell.beyond
                for name, score in cell.scores.items():
                    published, signature = score.published, test.metric(name).signature
                    difference = None if published is None else score.mean - published
                    of_score = {"metric": name, "signature": signature, "difference": difference}
                    yield {**about, **of_score, **vars(score)}
                for name, value in further_figures(cell).items():
                    if value is not None:
                        yield {**about, "metric": name, "mean": value}
        yield from _of_places_and_losses(report, test)
    for system in report.systems:
        known: dict[str, tuple[float | None, float | None]] = {
            "parameters": (system.parameters, None),
            "parameters of the encodings": (system.encoding_parameters, None),
            "longest source": (system.longest_trained, None),
            "updates": over_runs(system, "step"),
            "dev perplexity": over_runs(system, "dev_perplexity"),
            "seconds": over_runs(system, "seconds"),
            "tokens per second": over_runs(system, "tokens_per_second"),
        }
        for name, (mean, deviation) in known.items():
            if mean is not None:
                about = _about(system, TRAINING)
                yield {**about, "metric": name, "mean": mean, "deviation": deviation}


def _of_places_and_losses(report: Report, test: ScoredTest) -> Iterator[dict[str, Any]]:
    """The parts of joined lines, and what is lost beyond the trained length and why."""
    for row in test.places:
        for system, cell in zip(report.systems, row.cells, strict=True):
            about = {**_about(system, test.name), "bucket": f"part {row.name}", "pairs": row.pairs}
            for name, title in OF_PARTS.items():
                if (mean := of_part(cell, name)) is not None:
                    bounds = vars(cell.arrived) if name == "arrived" and cell.arrived else {}
                    yield {**about, "metric": title, "mean": mean, **bounds}
    for system, parts in zip(report.systems, test.losses, strict=False):
        for name, title in OF_LOSSES.items() if parts else ():
            of = {"bucket": "beyond", "pairs": parts and parts.pairs}
            of = {"bucket": name} if name == "within" else of
            about = {**_about(system, test.name), **of, "metric": title}
            yield {**about, **vars(getattr(parts, name))}


def _about(system: ComparedSystem, test: str) -> dict[str, Any]:
    return {"test": test, "system": system.label, "runs": len(system.runs)}
