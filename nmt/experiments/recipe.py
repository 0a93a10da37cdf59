"""The stages of nmt-recipe: downloads and texts, then the paper's tables over its own runs.

Training and scoring are those of `nmt-train experiment=table2 scale=wmt19`: the same runs in the
same directories, so that whichever comes second finds them finished.
"""

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nmt.config import Settings, freeze
from nmt.data.parallel import cores
from nmt.errors import Exit, UserError
from nmt.experiments.plan import PlannedRun, choices, failure, outcome_of, without
from nmt.experiments.tables import PlannedTable, make_table, plan_table
from nmt.overrides.arguments import parse, read
from nmt.overrides.compose import composed
from nmt.overrides.options import quoted
from nmt.overrides.sweep import Sweep, sweep_of
from nmt.recipes import estimate, stages, wmtsets
from nmt.recipes.estimate import StageNeeds, check_disk
from nmt.recipes.work import RecipeJob, StageItem, pending, perform, unfinished_items

log = logging.getLogger(__name__)


class RecipeRequest(NamedTuple):
    """What is to be done of a recipe."""

    job: RecipeJob
    stages: list[str]
    runs: Path  # as nmt-train's runs=
    encodings: str | None  # None: those of the lock file
    overrides: list[str]  # of nmt-train
    max_days: int  # of training, by the estimate
    command: str  # as it was typed


class StageForecast(NamedTuple):
    """One stage before it is done."""

    stage: str
    todo: str  # what is to be done; empty: nothing
    needs: StageNeeds
    place: Path  # where it writes

    def __str__(self) -> str:
        return f"{self.stage}: {f'{self.todo}; {self.needs}' if self.todo else 'nothing to do'}"


Round = tuple[
    Callable[[RecipeJob], list[StageItem]],
    Callable[[RecipeJob, Sequence[str] | None], StageNeeds],
]
TEXTS: dict[str, Sequence[Round]] = {  # stage -> its rounds, the second of what the first makes
    "download": [(stages.download, estimate.of_download)],
    "extract": [(stages.extract, estimate.of_extract)],
    "corpus": [(stages.corpus, estimate.of_corpus)],
    "tests": [(wmtsets.tests, estimate.of_tests), (wmtsets.joined, estimate.of_joined)],
}


def make_texts(stage: str, request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """Do what one of the stages that make text lacks, with an estimate before it."""
    job, total, done = request.job, 0, 0
    for find, of in TEXTS[stage]:
        works = find(job)
        if todo := pending(job, stage, works):
            needed = of(job, [work.item for work in todo])
            log.info("%s: %d of %d to do, %s", stage, len(todo), len(works), needed)
            check_disk({job.root: needed.disk})
            perform(job, stage, todo)
        total, done = total + len(works), done + len(todo)
    if not done:
        log.info("%s: nothing to do; all inputs and outputs (%d) are as they were", stage, total)
    if stage == "corpus":
        yield f"{stages.describe(job)}\n"


def prepare(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """nmt-prepare, its report, and what the limit on length costs, next to the paper's figures."""
    from nmt.data.cache import damage

    job, first = request.job, tables[0].runs[0].planned
    settings = first.settings
    ledger, inputs = job.ledger("prepare"), _inputs(job, settings)
    if (facts := ledger.done("prepared", inputs)) and damage(Path(facts["path"])) is None:
        log.info("prepare: nothing to do; %s is as it was", facts["path"])
        return
    needed = estimate.of_prepare(job, settings, cores())
    log.info("prepare: %s", needed)
    check_disk({Path(settings.data.cache): needed.disk})
    log.info("  nmt-prepare %s", shlex.join(first.experiment.overrides))
    from nmt import corpus
    from nmt.data.prepare import report
    from nmt.data.report import describe
    from nmt.recipes import loss

    prepared = corpus.prepare(settings)
    counts = report(prepared.path)
    lost = loss.loss(prepared.train, counts, settings.data.max_length)
    yield f"{describe(counts)}\n\n{loss.describe(lost, job.lock.paper)}\n{prepared.path}\n"
    files = [prepared.path / name for name in ("report.json", "facts.json", "manifest.json")]
    result = {
        "path": str(prepared.path.resolve()),
        "fingerprint": prepared.facts["fingerprint"],
    }
    ledger.note("prepared", inputs, files, result | lost._asdict())


def train(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """nmt-train for each encoding, as many at once as there is room for; finished runs stay."""
    from nmt.experiments.run import train_all

    job, table = request.job, tables[0]
    runs = [run.planned for run in table.runs]
    fingerprints = {run.name: _fingerprint(job, run.settings) for run in runs}
    todo = []
    for run in runs:
        if (outcome := outcome_of(run, fingerprints[run.name])) is None:
            todo.append(run)
        else:
            log.info("train: nothing to do for %s; %s", run.directory, outcome)
    if todo:
        needed = _training(job, todo, table.at_once)
        log.info("train: %d runs, %d at once, %s", len(todo), table.at_once, needed)
        check_disk({request.runs: needed.disk})
        for run in todo:
            log.info("  nmt-train %s > %s", shlex.join(run.experiment.overrides), run.log)
    missing = train_all(todo, fingerprints, table.at_once)
    yield from (f"{run.directory}\n" for run in without(todo, missing))
    if missing:
        raise failure(missing, len(runs), "runs")


def score(request: RecipeRequest, tables: Sequence[PlannedTable]) -> Iterator[str]:
    """The paper's tables of these runs, as nmt-train makes them; translations are kept."""
    from nmt.compare import text

    for table in tables:
        name = table.report.table.name
        log.info("score: %s, %s", name, _scoring(request.job, table) or "translated before")
        if waiting := _unfinished(table):
            raise UserError(
                f"{waiting[0].directory}: not trained yet; the stage train does that",
                Exit.NO_INPUT,
            )
        reports, failed = make_table(table, request.command)
        yield from map(text.tables, reports)
        if failed is not None:
            raise failed


STAGES: dict[str, Callable[[RecipeRequest, Sequence[PlannedTable]], Iterator[str]]] = {
    **{stage: partial(make_texts, stage) for stage in TEXTS},
    "prepare": prepare,
    "train": train,
    "score": score,
}


def plan(request: RecipeRequest) -> list[PlannedTable]:
    """The paper's tables over the recipe's runs; none where no stage needs a model.

    Raises UserError as `plan_table`, for overrides that do not fit before anything is downloaded.
    """
    if all(stage in TEXTS for stage in request.stages):
        return []
    sweep = _sweep(request)
    first = plan_table(sweep, elsewhere="--runs")
    tables = [first]
    for name in request.job.lock.tables[1:]:
        words = [o for o in sweep.jobs[0] if o.key_or_group != "experiment"]
        layout = composed([*read([f"experiment={name}"]), *words]).table
        assert layout is not None, "it is the experiment of a table"
        tables.append(first._replace(sweep=sweep._replace(name=name), report=layout))
    return tables


def foreseen(request: RecipeRequest, tables: Sequence[PlannedTable]) -> list[StageForecast]:
    """What each stage will do and take, as far as that can be said now; reads no large file."""
    job = request.job
    forecasts = [_of_texts(job, stage) for stage in request.stages if stage in TEXTS]
    if not (later := [stage for stage in request.stages if stage not in TEXTS]):
        return forecasts
    first = tables[0]
    settings = first.runs[0].planned.settings
    if "prepare" in later and not _seems_prepared(job, settings):
        needs = estimate.of_prepare(job, settings, cores())
        forecasts.append(StageForecast("prepare", "nmt-prepare", needs, Path(settings.data.cache)))
    if "train" in later and (todo := _unfinished(first)):
        needs = _training(job, todo, first.at_once)
        what = f"{len(todo)} runs, {first.at_once} at once"
        forecasts.append(StageForecast("train", what, needs, request.runs))
    scores = {t.report.table.name: _scoring(job, t) for t in tables}
    if "score" in later and (todo_scores := {n: s for n, s in scores.items() if s is not None}):
        needs = estimate.total(list(todo_scores.values()))
        forecasts.append(StageForecast("score", ", ".join(todo_scores), needs, request.runs))
    there = {forecast.stage for forecast in forecasts}
    forecasts += [StageForecast(s, "", StageNeeds(), job.root) for s in later if s not in there]
    return sorted(forecasts, key=lambda forecast: request.stages.index(forecast.stage))


def _of_texts(job: RecipeJob, stage: str) -> StageForecast:
    items: list[str] = []
    needs = []
    for find, of in TEXTS[stage]:
        try:
            todo = unfinished_items(job, stage, find(job))
        except UserError as error:
            if error.code != Exit.NO_INPUT:
                raise
            needs.append(of(job, None))
            items.append("what the stages before make")
            continue
        needs.append(of(job, todo))
        items += todo
    return StageForecast(stage, ", ".join(items), estimate.total(needs), job.root)


def totals(request: RecipeRequest, forecasts: Sequence[StageForecast]) -> list[str]:
    """Lines on what all stages take together, and where; none if nothing is to be done."""
    if not (todo := [forecast for forecast in forecasts if forecast.todo]):
        return []
    needs, root = estimate.total([forecast.needs for forecast in todo]), request.job.root
    lines = [
        f"in all: {estimate.size(needs.disk)} on disk, at most {estimate.size(needs.memory)} of "
        f"memory at once, {estimate.duration(needs.seconds)} (rough)"
    ]
    for place, disk in _by_place(todo).items():
        inside = place.absolute().is_relative_to(root.absolute())
        lines.append(f"  {place}: {estimate.size(disk)}{'' if inside else ', not below --root'}")
    if "tests" in {forecast.stage for forecast in todo} and wmtsets.by_sacrebleu(request.job):
        kept = f"{estimate.size(estimate.SETS)}, not below --root; sacreBLEU keeps archives there"
        lines.append(f"  {wmtsets.sacrebleu_directory()}: {kept}")
    return lines


def check(request: RecipeRequest, forecasts: Sequence[StageForecast]) -> None:
    """Refuse, before the first byte, what the disk cannot hold (74) or what takes too long (2)."""
    check_disk(_by_place(forecasts))
    for forecast in forecasts:
        days = forecast.needs.seconds / 86400
        if forecast.stage == "train" and days > request.max_days:
            raise UserError(
                f"train: {estimate.duration(forecast.needs.seconds)} by the estimate for this "
                f"machine, more than --max-days {request.max_days}; leave train and score to a "
                "machine with a GPU (name the other stages here), choose a smaller model= or "
                f"trainer.max_steps=, or add --max-days {days + 1:.0f}"
            )


def _by_place(forecasts: Sequence[StageForecast]) -> dict[Path, float]:
    """Bytes of each directory; those of a directory below another are the outer one's."""
    places = {forecast.place for forecast in forecasts if forecast.needs.disk}
    disk: dict[Path, float] = {}
    for forecast in forecasts:
        outer = [p for p in places if forecast.place.absolute().is_relative_to(p.absolute())]
        if outer:
            place = min(outer, key=lambda path: len(path.absolute().parts))
            disk[place] = disk.get(place, 0) + forecast.needs.disk
    return disk


def _sweep(request: RecipeRequest) -> Sweep:
    """The recipe's runs as those of its first table."""
    lock = request.job.lock
    given = {override.partition("=")[0] for override in request.overrides}
    common = [f"experiment={lock.tables[0]}", f"scale={lock.scale}"]
    common += [f"data.root={quoted(request.job.root)}", f"runs={quoted(request.runs)}"]
    common += [*([] if "seed" in given else ["seed=1"]), *request.overrides]
    names = choices(request.encodings) if request.encodings else lock.encodings
    papers = ",".join(lock.runs[name] for name in names if name in lock.runs)
    chosen = [[f"run={papers}"]] if papers else []
    others = [f"encoding={name}" for name in names if name not in lock.runs]
    chosen += [[f"run={lock.other_run}", other] for other in others]
    sweeps = [sweep_of(parse([*words, *common]).overrides) for words in chosen]
    jobs = [job for sweep in sweeps if sweep is not None for job in sweep.jobs]
    assert sweeps[0] is not None, "a table is a sweep"
    return sweeps[0]._replace(jobs=jobs)


def _unfinished(table: PlannedTable) -> list[PlannedRun]:
    """The runs that have not made all their updates, on whatever text."""
    return [run.planned for run in table.runs if outcome_of(run.planned) is None]


def _scoring(job: RecipeJob, table: PlannedTable) -> StageNeeds | None:
    """What the translations of a table take that no run has kept; None if all are there."""
    from nmt.experiments.translate import TRANSLATIONS

    runs = [run.planned for run in table.runs]
    scale = runs[0].experiment.scale
    assert scale is not None, "a table is at a scale"
    name = getattr(scale.tests, table.report.table.test)
    todo = [r for r in runs if not (r.directory / TRANSLATIONS / f"{name}.json").exists()]
    if not todo:
        return None
    sets = [job.lock.sets[name]] if name in job.lock.sets else list(job.lock.sets.values())
    lines = sum(test.lines or 2000 for test in sets) * len(todo)
    weights = max(_weights(run.settings) for run in todo)
    return estimate.of_score(lines, todo[0].settings, weights, _gpu(todo[0].settings))


def _inputs(job: RecipeJob, settings: Settings) -> dict[str, object]:
    """What decides on the prepared corpus; UserError (66) if its text is not there yet."""
    plain = freeze(settings)
    texts = {}
    for stage, item in (("corpus", "train"), ("tests", "dev")):
        ledger = job.ledger(stage)
        ledger.facts(item, stage)
        texts[item] = ledger.outputs(item)
    return {"texts": texts, "data": plain["data"], "segmenter": plain["segmenter"]}


def _seems_prepared(job: RecipeJob, settings: Settings) -> bool:
    try:
        return job.ledger("prepare").seems_done("prepared", _inputs(job, settings))
    except UserError as error:
        if error.code != Exit.NO_INPUT:
            raise
        return False


def _fingerprint(job: RecipeJob, settings: Settings) -> str:
    """That of the prepared corpus; UserError (66) if it is not there yet."""
    facts = job.ledger("prepare").done("prepared", _inputs(job, settings))
    if facts is None:
        raise UserError(
            f"{job.root}: not prepared with these overrides; the stage prepare does that",
            Exit.NO_INPUT,
        )
    return str(facts["fingerprint"])


def _training(job: RecipeJob, runs: Sequence[PlannedRun], at_once: int) -> StageNeeds:
    """What training of these runs takes together."""
    needs = [
        estimate.of_train(job, run.settings, _weights(run.settings), _gpu(run.settings))
        for run in runs
    ]
    return StageNeeds(
        disk=sum(each.disk for each in needs),
        memory=max(each.memory for each in needs) * min(at_once, len(runs)),
        seconds=max(each.seconds for each in needs) * -(-len(runs) // at_once),
    )


def _weights(settings: Settings) -> int:
    """Numbers that training changes, those of the encodings included."""
    from nmt import build

    pieces = estimate.pieces(settings)
    return sum(p.numel() for p in build.outline(settings, pieces, pieces).parameters())


def _gpu(settings: Settings) -> bool:
    from nmt.device import pick

    return pick(settings.trainer.device).type == "cuda"
