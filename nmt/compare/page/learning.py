"""How the systems learnt, and what they cost."""

from statistics import mean, median, stdev

from nmt.compare.page import grids
from nmt.compare.page.charts import Line, over_steps
from nmt.compare.page.grids import Field
from nmt.compare.page.lengths import figure, legend
from nmt.compare.page.markup import Markup, bdi, details, nothing, section, tag
from nmt.compare.page.numbers import EMPTY, count, duration, fixed
from nmt.compare.report import ComparedSystem, Report


def render(report: Report) -> Markup:
    """Perplexities and learning rates over the updates, one line for each run."""
    curves = [(s, run.curve) for s, system in enumerate(report.systems) for run in system.runs]
    kinds = {
        "Dev perplexity": [Line(s, c.dev_steps, c.dev) for s, c in curves],
        "Training perplexity": [Line(s, c.steps, c.train) for s, c in curves],
        "Learning rate": [Line(s, c.steps, c.rates) for s, c in curves],
    }
    charts = []
    for name, lines in kinds.items():
        known = [line for line in lines if len(line.xs) > 1]
        if known:
            about = f"{len(known)} runs, one line each, over their updates."
            charts.append(figure(name, over_steps(name, about, known)))
    if not charts:
        return section("learning", "Learning curves", nothing("No curve was recorded."))
    return section(
        "learning",
        "Learning curves",
        tag("div", legend(report), tag("div", charts, class_="charts"), class_="switched"),
        tag(
            "p",
            "One line for each run, in the colour of its system; long curves are thinned. "
            "Axes are logarithmic where values differ more than tenfold.",
            class_="note",
        ),
    )


def size(report: Report) -> Markup:
    """Parameters and speed of each system, then every run."""
    if not report.systems:
        return section("size", "Size and speed", nothing("No system."))
    rows = []
    for s, system in enumerate(report.systems):
        speeds = [r.tokens_per_second for r in system.runs if r.tokens_per_second is not None]
        seconds = [r.seconds for r in system.runs if r.seconds is not None]
        rows.append(
            [
                Field(grids.named(report, s)),
                Field(count(system.parameters), system.parameters),
                Field(count(system.encoding_parameters), system.encoding_parameters),
                _number(float(system.longest_trained) if system.longest_trained else None),
                Field(count(len(system.runs)), len(system.runs)),
                _perplexity(system),
                _number(median(speeds) if speeds else None),
                Field(duration(mean(seconds)), mean(seconds)) if seconds else Field(EMPTY),
            ]
        )
    headings = [
        "System",
        "Parameters",
        "of its encodings",
        "Longest trained",
        "Seeds",
        "Best dev perplexity",
        "Tokens/s",
        "Training time",
    ]
    note = (
        "Best dev perplexity: mean ± standard deviation over seeds. Tokens/s: target tokens in "
        "training, median over runs. Training time: mean over runs, spent in updates. Figures of "
        "speed compare only where machine and load were the same."
    )
    return section(
        "size",
        "Size and speed",
        grids.sortable("Size and speed", headings, rows),
        tag("p", note, class_="note"),
        details("Every run", _runs(report), class_="fold"),
    )


def _number(value: float | None) -> Field:
    return Field(count(value), value)


def _perplexity(system: ComparedSystem) -> Field:
    known = [r.dev_perplexity for r in system.runs if r.dev_perplexity is not None]
    if not known:
        return Field(EMPTY)
    deviation = f" ± {fixed(stdev(known), 2)}" if len(known) > 1 else ""
    return Field(fixed(mean(known), 2) + deviation, mean(known))


def _runs(report: Report) -> Markup:
    rows = [
        [
            Field(grids.named(report, s)),
            Field(str(run.seed), run.seed),
            _number(run.step),
            Field(fixed(run.dev_perplexity, 2), run.dev_perplexity),
            _number(run.tokens_per_second),
            Field(duration(run.seconds), run.seconds),
            Field(tag("code", bdi(run.run))),
        ]
        for s, system in enumerate(report.systems)
        for run in system.runs
    ]
    headings = ["System", "Seed", "Updates", "Dev perplexity", "Tokens/s", "Time", "Directory"]
    return grids.sortable("Every run", headings, rows)
