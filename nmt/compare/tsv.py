"""A study as tab-separated values: one number a line, for spreadsheets and plots."""

from collections.abc import Iterator
from statistics import fmean, stdev

from nmt.compare.study import Cell, Row, Score, Study, System, Test

HEADING = (
    *("test", "bucket", "shortest", "longest", "pairs", "system", "runs", "unseen", "metric"),
    *("mean", "deviation", "low", "high", "p", "published", "difference", "signature"),
)
TRAINING = "training"  # stands for a test where the numbers are of training

Line = dict[str, str | float | int | bool | None]


def tsv(study: Study) -> str:
    """One line for each test, bucket, system and metric, under a heading; empty: no such number.

    `low` and `high` bound the 95% interval; `unseen` says that all sources of the bucket are
    longer than any in the system's training. A test called `training` holds what is known of the
    systems themselves. Numbers are not rounded.
    """
    lines = [*(line for test in study.tests for line in _test(study, test))]
    lines += [line for system in study.systems for line in _system(system)]
    return "\n".join(["\t".join(HEADING), *map(_joined, lines)]) + "\n"


def _joined(line: Line) -> str:
    return "\t".join(_plain(line.get(key)) for key in HEADING)


def _plain(value: str | float | int | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).split())  # a tab or line end in a name would break the table


def _test(study: Study, test: Test) -> Iterator[Line]:
    signatures = {metric.name: metric.signature for metric in test.metrics}
    for row in test.rows:
        for system, cell in zip(study.systems, row.cells, strict=True):
            about = _about(test, row, system, cell)
            for name, score in cell.scores.items():
                yield {**about, "metric": name, "signature": signatures[name], **_score(score)}
            for name, value in _others(cell).items():
                if value is not None:
                    yield {**about, "metric": name, "mean": value}


def _about(test: Test, row: Row, system: System, cell: Cell) -> Line:
    return {
        "test": test.name,
        "bucket": row.name,
        "shortest": row.low,
        "longest": row.high,
        "pairs": row.pairs,
        "system": system.label,
        "runs": len(system.runs),
        "unseen": cell.unseen,
    }


def _score(score: Score) -> Line:
    known = score.published
    return {
        "mean": score.mean,
        "deviation": score.deviation,
        "low": score.low,
        "high": score.high,
        "p": score.p,
        "published": known,
        "difference": None if known is None else score.mean - known,
    }


def _others(cell: Cell) -> dict[str, float | None]:
    found = {"length ratio": cell.ratio}
    if cell.diagnosis:
        found |= {
            "repeated 4-grams": cell.diagnosis.repeated,
            "repeated 4-grams of the references": cell.diagnosis.repeated_reference,
            "source never attended": cell.diagnosis.unattended,
            "second half dropped": cell.diagnosis.dropped_half,
        }
    return found


def _system(system: System) -> Iterator[Line]:
    about: Line = {"test": TRAINING, "system": system.label, "runs": len(system.runs)}
    yield {**about, "metric": "parameters", "mean": system.parameters}
    yield {**about, "metric": "parameters of the encodings", "mean": system.encoding_parameters}
    if system.longest_trained is not None:
        yield {**about, "metric": "longest source", "mean": system.longest_trained}
    yield {**about, "metric": "updates", **_over([float(run.step) for run in system.runs])}
    for name, values in (
        ("dev perplexity", [run.dev_perplexity for run in system.runs]),
        ("seconds", [run.seconds for run in system.runs]),
        ("tokens per second", [run.tokens_per_second for run in system.runs]),
    ):
        known = [value for value in values if value is not None]
        if known:
            yield {**about, "metric": name, **_over(known)}


def _over(values: list[float]) -> Line:
    """Mean and deviation over runs."""
    return {"mean": fmean(values), "deviation": stdev(values) if len(values) > 1 else None}
