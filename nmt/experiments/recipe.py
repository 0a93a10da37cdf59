"""The stages of nmt-recipe: downloads and texts, then the paper's tables over its own runs.

Training and scoring are those of `nmt-train experiment=table2 scale=wmt19`: the same runs in the
same directories, so that whichever comes second finds them finished.
"""

import logging
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.config import Settings, freeze
from nmt.data.parallel import cores
from nmt.errors import Exit, UserError
from nmt.experiments.plan import PlannedRun, failure, outcome_of, prepare_corpora, without
from nmt.experiments.run import train_all
from nmt.experiments.tables import PlannedTable, make_table, plan_table
from nmt.overrides.arguments import parse
from nmt.overrides.quoting import quoted
from nmt.overrides.sweep import Sweep, sweep_of
from nmt.recipes import estimate, stages, wmtsets
from nmt.recipes.estimate import Cost, duration, size
from nmt.recipes.stamp import RecipeJob, Stage, Stamp, is_due, perform

log = logging.getLogger(__name__)
TEXTS: dict[str, Callable[[RecipeJob], Stage]] = {
    "download": stages.download,
    "corpus": stages.corpus,
    "tests": wmtsets.tests,
}


class RecipeRequest(NamedTuple):
    """The stages of a recipe to do, and how."""

    job: RecipeJob
    stages: list[str]
    runs: Path  # as nmt-train's runs=
    encodings: str | None  # None: those of the lock file
    overrides: list[str]  # of nmt-train
    max_days: int  # of training, by the estimate
    command: str  # as it was typed


class Forecast(NamedTuple):
    """A stage before it is done."""

    stage: str
    todo: str  # for people; empty: nothing
    cost: Cost
    place: Path  # where it writes

    def __str__(self) -> str:
        if not self.todo:
            return f"{self.stage}: nothing to do"
        disk, time = size(self.cost.disk), duration(self.cost.seconds)
        return f"{self.stage}: {self.todo}; about {disk} of disk, {time} (rough)"


def plan(request: RecipeRequest) -> list[PlannedTable]:
    """The paper's tables over the recipe's runs; none where no stage needs a model.

    Raises UserError as `plan_table`, for overrides that do not fit before anything is downloaded.
    """
    if all(stage in TEXTS for stage in request.stages):
        return []
    tables = request.job.lock.tables
    return [plan_table(_sweep(request, table), elsewhere="--runs") for table in tables]


def _sweep(request: RecipeRequest, table: str) -> Sweep:
    """The recipe's runs as those of a table."""
    lock = request.job.lock
    common = [f"experiment={table}", f"scale={lock.scale}", f"runs={quoted(request.runs)}"]
    common += [f"data.root={quoted(request.job.root)}", *request.overrides]
    if not any(override.startswith("seed=") for override in request.overrides):
        common.append("seed=1")
    sweeps = []
    for name in _named(request.encodings) if request.encodings else lock.encodings:
        run = lock.runs.get(name)
        chosen = [f"run={run}"] if run else [f"run={lock.other_run}", f"encoding={name}"]
        sweep = sweep_of(parse([*chosen, *common]))
        assert sweep is not None, "a table is a sweep"
        sweeps.append(sweep)
    return sweeps[-1]._replace(jobs=[job for sweep in sweeps for job in sweep.jobs])


def _named(encodings: str) -> list[str]:
    """Split `a,b,[a,b]` at the commas outside brackets."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", encodings)]


def forecasts(request: RecipeRequest, tables: Sequence[PlannedTable]) -> list[Forecast]:
    """Work, disk and time of each stage, as far as they are known now."""
    foreseen = []
    for name in request.stages:
        if stage := _stamped(request, name, tables):
            todo = "to do" if is_due(request.job, stage) else ""
            cost = stage.cost if todo else Cost()
            foreseen.append(Forecast(name, todo, cost, stage.place))
        else:
            foreseen.append((_training if name == "train" else _scoring)(request, tables))
    return foreseen


def totals(request: RecipeRequest, forecasts: Sequence[Forecast]) -> list[str]:
    """Lines on what all stages take together, and where; none if nothing is to be done."""
    if not (todo := [forecast for forecast in forecasts if forecast.todo]):
        return []
    cost = estimate.total(forecast.cost for forecast in todo)
    lines = [f"in all: {size(cost.disk)} on disk, {duration(cost.seconds)} (rough)"]
    for place, disk in _by_place(request, todo).items():
        outside = "" if place == request.job.root else ", not below --root"
        lines.append(f"  {place}: {size(disk)}{outside}")
    if any(f.stage == "tests" for f in todo) and wmtsets.by_sacrebleu(request.job):
        kept = f"{size(estimate.SETS)}, not below --root; sacreBLEU keeps archives there"
        lines.append(f"  {wmtsets.sacrebleu_directory()}: {kept}")
    return lines


def check(request: RecipeRequest, forecasts: Sequence[Forecast]) -> None:
    """Refuse, before the first byte, what the disk cannot hold (74) or what takes too long (2)."""
    estimate.check_disk(_by_place(request, forecasts))
    for forecast in forecasts:
        days = forecast.cost.seconds / 86400
        if forecast.stage == "train" and days > request.max_days:
            raise UserError(
                f"train: {duration(forecast.cost.seconds)} by the estimate for this "
                f"machine, more than --max-days {request.max_days}; leave train and score to a "
                "machine with a GPU (name the other stages here), choose a smaller model= or "
                f"trainer.max_steps=, or add --max-days {days + 1:.0f}"
            )


def _by_place(request: RecipeRequest, forecasts: Sequence[Forecast]) -> dict[Path, float]:
    """Bytes of --root and of each directory that is not below it."""
    root, disk = request.job.root, dict[Path, float]()
    for forecast in forecasts:
        inside = forecast.place.absolute().is_relative_to(root.absolute())
        place = root if inside else forecast.place
        disk[place] = disk.get(place, 0) + forecast.cost.disk
    return disk


def make(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """Do the stages; what each has to say."""
    for name in request.stages:
        if stage := _stamped(request, name, tables):
            yield perform(request.job, stage)
        else:
            yield from (train if name == "train" else score)(request, tables)


def _stamped(request: RecipeRequest, name: str, tables: Sequence[PlannedTable]) -> Stage | None:
    """The stage of this name, if it is done once for all runs."""
    if name in TEXTS:
        return TEXTS[name](request.job)
    return prepare(request.job, tables[0].runs[0]) if name == "prepare" else None


def prepare(job: RecipeJob, run: PlannedRun) -> Stage:
    """nmt-prepare, its report, and what the limit on length costs, next to the paper's figures."""
    settings = run.settings

    def inputs() -> dict[str, Any]:
        texts = {**Stamp(job, "corpus").outputs(), **Stamp(job, "tests").outputs()}
        plain = freeze(settings)
        return {"texts": texts, "data": plain["data"], "segmenter": plain["segmenter"]}

    def make() -> tuple[list[Path], str]:
        from nmt import corpus
        from nmt.data.prepare import report
        from nmt.data.report import describe
        from nmt.recipes.loss import loss

        log.info("  nmt-prepare %s", shlex.join(run.experiment.overrides))
        prepared = corpus.prepare(settings)
        counts = report(prepared.path)
        lost = loss(prepared.train, counts, settings.data.max_length, job.lock.paper)
        files = [prepared.path / name for name in ("report.json", "facts.json", "manifest.json")]
        return files, f"{describe(counts)}\n\n{lost}\n{prepared.path}\n"

    cost = estimate.of_prepare(_text(job), settings, cores())
    return Stage("prepare", Path(settings.data.cache), cost, inputs, make)


def train(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """nmt-train for each encoding, as many at once as there is room for; finished runs stay."""
    job, table = request.job, tables[0]
    runs = table.runs
    if why := Stamp(job, "prepare").due(prepare(job, runs[0])):
        raise UserError(
            f"{job.root}: not prepared with these overrides ({why}); the stage prepare does that",
            Exit.NO_INPUT,
        )
    corpora = prepare_corpora(runs)
    todo = [run for run in runs if outcome_of(run, corpora[run.name]) is None]
    for run in runs:
        doing = f"nmt-train {shlex.join(run.experiment.overrides)} > {run.log}"
        nothing = f"nothing to do for {run.directory}"
        log.info("train: %s", doing if run in todo else nothing)
    failed = train_all(todo, corpora, table.at_once)
    yield from (f"{run.directory}\n" for run in without(todo, failed))
    if failed:
        raise failure(failed, len(runs))


def score(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """The paper's tables of these runs, as nmt-train makes them; translations are kept."""
    from nmt.compare import text

    if waiting := _untrained(tables):
        raise UserError(
            f"{waiting[0].directory}: not trained yet; the stage train does that", Exit.NO_INPUT
        )
    for table in tables:
        log.info("score: %s", table.report.table.name)
        reports, failed = make_table(table, request.command)
        yield from map(text.render, reports)
        if failed is not None:
            raise failed


def _text(job: RecipeJob) -> int:
    """Bytes of the training text, by the lock file."""
    return sum(corpus.text for corpus in job.corpora)


def _untrained(tables: Sequence[PlannedTable]) -> list[PlannedRun]:
    """The runs that have not made all their updates, on whatever text."""
    return [run for run in tables[0].runs if outcome_of(run) is None]


def _training(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Forecast:
    todo, at_once = _untrained(tables), tables[0].at_once
    costs = [estimate.of_train(_text(request.job), *_facts(run.settings)) for run in todo]
    rounds = -(-len(todo) // at_once)
    seconds = rounds * max((cost.seconds for cost in costs), default=0)
    what = f"{len(todo)} runs, {at_once} at once" if todo else ""
    return Forecast("train", what, Cost(sum(cost.disk for cost in costs), seconds), request.runs)


def _scoring(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Forecast:
    """Of the tables that are not there yet, as if nothing were translated."""
    runs = tables[0].runs
    folder = runs[0].directory.parent
    todo = [str(t.sweep.name) for t in tables if not (folder / f"{t.sweep.name}.json").exists()]
    sets = request.job.lock.sets.values()
    lines = sum(known.lines or 2000 for known in sets) * len(runs) * len(todo)
    cost = estimate.of_score(lines, *_facts(runs[0].settings))
    return Forecast("score", ", ".join(todo), cost, request.runs)


def _facts(settings: Settings) -> tuple[Settings, int, bool]:
    """Settings, the numbers that training changes, and whether a GPU does."""
    from nmt import build
    from nmt.machine.device import pick

    model = build.outline(settings, estimate.pieces(settings), estimate.pieces(settings))
    weights = sum(parameter.numel() for parameter in model.parameters())
    return settings, weights, pick(settings.trainer.device).type == "cuda"
