"""How the systems learned, over all runs of each."""

from nmt.compare.page.charts import RunCurve, over_steps
from nmt.compare.page.svg import Chart
from nmt.compare.report import Report


def learning_charts(report: Report) -> list[Chart]:
    """Perplexities and learning rates over the updates, one line for each run."""
    curves = [(s, run.curve) for s, system in enumerate(report.systems) for run in system.runs]
    kinds = {
        "Dev perplexity": [RunCurve(s, c.dev_steps, c.dev) for s, c in curves],
        "Training perplexity": [RunCurve(s, c.steps, c.train) for s, c in curves],
        "Learning rate": [RunCurve(s, c.steps, c.rates) for s, c in curves],
    }
    charts = []
    for name, lines in kinds.items():
        if known := [line for line in lines if len(line.xs) > 1]:
            about = f"{len(known)} runs, one line each, over their updates."
            charts.append(over_steps(name, about, known)._replace(caption=name))
    return charts
