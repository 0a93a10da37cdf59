"""How the systems learned, and what they cost, over all runs of each."""

from statistics import mean
from typing import NamedTuple

from nmt.compare.notation import mean_and_deviation
from nmt.compare.page.charts import RunCurve, over_steps
from nmt.compare.page.lengths import Figure
from nmt.compare.page.text import DASH, deviating
from nmt.compare.report import ComparedSystem, Report


def learning_figures(report: Report) -> list[Figure]:
    """Perplexities and learning rates over the updates, one line for each run."""
    curves = [(s, run.curve) for s, system in enumerate(report.systems) for run in system.runs]
    kinds = {
        "Dev perplexity": [RunCurve(s, c.dev_steps, c.dev) for s, c in curves],
        "Training perplexity": [RunCurve(s, c.steps, c.train) for s, c in curves],
        "Learning rate": [RunCurve(s, c.steps, c.rates) for s, c in curves],
    }
    figures = []
    for name, lines in kinds.items():
        if known := [line for line in lines if len(line.xs) > 1]:
            about = f"{len(known)} runs, one line each, over their updates."
            figures.append(Figure(name, over_steps(name, about, known)))
    return figures


class OverRuns(NamedTuple):
    """What the runs of a system have in common."""

    perplexity: float | None  # mean of the best on dev
    perplexity_text: str  # with its deviation
    speed: float | None  # median of tokens per second
    seconds: float | None  # mean


def over_runs(system: ComparedSystem) -> OverRuns:
    """Perplexity, speed and time of a system's runs, as far as they are known."""
    best = [run.dev_perplexity for run in system.runs if run.dev_perplexity is not None]
    seconds = [run.seconds for run in system.runs if run.seconds is not None]
    return OverRuns(
        perplexity=mean(best) if best else None,
        perplexity_text=deviating(*mean_and_deviation(best), 2, " ") if best else DASH,
        speed=system.tokens_per_second,
        seconds=mean(seconds) if seconds else None,
    )
