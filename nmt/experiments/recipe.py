"""The stages of nmt-recipe that learn: prepare, train, score.

Each gives, piece by piece, what is to be shown on stdout, and notes in the ledger what was done.
"""

import hashlib
import logging
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.config import Settings, freeze
from nmt.data.parallel import cores
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.recipes import estimate, wmtsets
from nmt.recipes.estimate import check_disk
from nmt.recipes.work import RecipeJob

if TYPE_CHECKING:
    from nmt.experiments.plan import PlannedRun

log = logging.getLogger(__name__)

BOUNDS = (25, 50, 75, 100)  # last lengths of the paper's buckets


class RecipeRequest(NamedTuple):
    """What is to be done of a recipe."""

    job: RecipeJob
    stages: list[str]
    runs: Path
    encodings: str | None  # None: those of the lock file
    overrides: list[str]  # of nmt-train


class ScoredSet(NamedTuple):
    """One test set that the systems are scored on, and what decides on their scores."""

    name: str
    source: Path
    reference: Path
    key: str  # in the ledger
    inputs: dict[str, Any]
    table: Path


def prepare(request: RecipeRequest) -> Iterator[str]:
    """nmt-prepare, its report, and what the limit on length costs beside the paper."""
    from nmt.data.cache import damage

    job, settings = request.job, _settings(request)
    ledger, inputs = job.ledger("prepare"), _inputs(job, settings)
    if (facts := ledger.done("prepared", inputs)) and damage(Path(facts["path"])) is None:
        log.info("prepare: nothing to do; %s is as it was", facts["path"])
        return
    needed = estimate.of_prepare(job, settings, cores())
    log.info("prepare: %s", needed)
    check_disk(Path(settings.data.cache), "prepare", needed)
    log.info("  nmt-prepare %s", shlex.join(_overrides(request)))
    from nmt import corpus
    from nmt.data.prepare import report
    from nmt.data.report import describe
    from nmt.recipes import loss

    prepared = corpus.prepare(settings)
    counts = report(prepared.path)
    lost = loss.loss(prepared.train, counts, settings.data.max_length)
    yield f"{describe(counts)}\n\n{loss.describe(lost, job.lock.paper)}\n{prepared.path}\n"
    files = [prepared.path / name for name in ("report.json", "facts.json", "manifest.json")]
    made = {
        "path": str(prepared.path.resolve()),
        "fingerprint": prepared.facts["fingerprint"],
    }
    ledger.note("prepared", inputs, files, made | lost._asdict())


def train(request: RecipeRequest) -> Iterator[str]:
    """nmt-train for each encoding, as many at once as there is room for; finished runs stay."""
    from nmt.experiments.plan import failure, outcome_of, without
    from nmt.experiments.run import places, train_all

    job, settings = request.job, _settings(request)
    corpus, fingerprint = _prepared_corpus(job, settings)
    runs = _runs(request)
    pending = []
    for run in runs:
        if (outcome := outcome_of(run, fingerprint)) is None:
            pending.append(run)
        else:
            log.info("train: nothing to do for %s; %s", run.name, outcome)
    at_once = min(places(settings), len(pending))
    if pending:
        gpu = _gpu(settings)
        one_run = estimate.of_train(job, settings, gpu)
        rounds = -(-len(pending) // at_once)
        needed = estimate.StageNeeds(
            one_run.disk * len(pending), one_run.memory * at_once, one_run.seconds * rounds
        )
        where = "a GPU each" if gpu else "the CPU"
        log.info("train: %d runs, %d at once on %s, %s", len(pending), at_once, where, needed)
        check_disk(request.runs, "train", needed)
        for run in pending:
            log.info("  nmt-train %s > %s", shlex.join(run.experiment.overrides), run.log)
    missing = train_all(pending, dict.fromkeys([run.name for run in pending], fingerprint), at_once)
    for run in without(runs, missing):
        inputs = {"corpus": corpus, "settings": freeze(run.settings)}
        facts = {"checkpoint": _checkpoint(run)}
        files = [run.directory / "config.json"]
        job.ledger("train").note(str(run.directory.resolve()), inputs, files, facts)
    yield from (f"{run.directory}\n" for run in without(pending, missing))
    if missing:
        raise failure(missing, len(runs), "runs")


def score(request: RecipeRequest) -> Iterator[str]:
    """nmt-evaluate on each test set, by the paper's buckets: the tables."""
    from nmt.experiments.plan import outcome_of

    job, settings, runs = request.job, _settings(request), _runs(request)
    known = job.ledger("prepare").facts_or_none("prepared")  # the corpus itself may be gone
    for run in runs:
        if outcome_of(run, known["fingerprint"] if known else None) is None:
            raise UserError(
                f"{run.directory}: not trained yet; the stage train does that", Exit.NO_INPUT
            )
    ledger, tests = job.ledger("score"), _tests(request, runs)
    pending = [test for test in tests if ledger.done(test.key, test.inputs) is None]
    for test in tests:
        if test not in pending:
            log.info("score: nothing to do for %s; %s:", test.name, test.table)
            yield f"{test.name}\n{test.table.read_bytes().decode()}\n"
    if pending:
        lines = sum(test.source.read_bytes().count(b"\n") for test in pending)
        needed = estimate.of_score(lines, settings, len(runs), _gpu(settings))
        log.info("score: %d test sets, %s", len(pending), needed)
        check_disk(request.runs, "score", needed)
    for test in pending:
        yield f"{test.name}\n{_scored(runs, test)}\n"
        files = [test.table, test.table.with_suffix(".json")]
        ledger.note(test.key, test.inputs, files, {"table": str(test.table)})


STAGES: dict[str, Callable[[RecipeRequest], Iterator[str]]] = {
    "prepare": prepare,
    "train": train,
    "score": score,
}


def foreseen(request: RecipeRequest, stage: str) -> str:
    """What a stage will take, as far as that can be said now."""
    job, settings = request.job, _settings(request)
    if stage == "prepare":
        return str(estimate.of_prepare(job, settings, cores()))
    count = len(_encodings(request))
    if stage == "train":
        one_run = estimate.of_train(job, settings, _gpu(settings))
        return f"{count} runs, each {one_run}"
    names = [*job.lock.test, *job.lock.all]
    lines = sum(job.lock.sets[name].lines or 2000 for name in names)
    return str(estimate.of_score(lines * 3 // 2, settings, count, _gpu(settings)))


def _overrides(request: RecipeRequest, training: bool = False) -> list[str]:
    from nmt.overrides.options import quoted

    lock = request.job.lock
    root = f"data.root={quoted(request.job.root)}"
    given = {override.partition("=")[0].lstrip("+~") for override in request.overrides}
    ours = [*lock.words, *(lock.training if training else ()), root]
    return [*(o for o in ours if o.partition("=")[0] not in given), *request.overrides]


def _settings(request: RecipeRequest) -> Settings:
    from nmt.overrides.compose import experiment_of

    return experiment_of(_overrides(request, training=True)).settings


def _encodings(request: RecipeRequest) -> list[str]:
    from nmt.experiments.plan import choices

    return choices(request.encodings) if request.encodings else list(request.job.lock.encodings)


def _runs(request: RecipeRequest) -> "list[PlannedRun]":
    from nmt.experiments.plan import plan_encodings

    overrides = _overrides(request, training=True)
    return plan_encodings(_encodings(request), overrides, request.runs)[0]


def _inputs(job: RecipeJob, settings: Settings) -> dict[str, Any]:
    """What decides on the prepared corpus; UserError (66) if its text is not there yet."""
    plain = freeze(settings)
    texts = {}
    for stage, item in (("corpus", "train"), ("tests", "dev")):
        ledger = job.ledger(stage)
        ledger.facts(item, stage)
        texts[item] = ledger.outputs(item)
    return {"texts": texts, "data": plain["data"], "segmenter": plain["segmenter"]}


def _prepared_corpus(job: RecipeJob, settings: Settings) -> tuple[str, str]:
    """Name and fingerprint of the prepared corpus; UserError (66) if it is not there yet."""
    facts = job.ledger("prepare").done("prepared", _inputs(job, settings))
    if facts is None:
        raise UserError(
            f"{job.root}: not prepared with these overrides; the stage prepare does that",
            Exit.NO_INPUT,
        )
    return Path(facts["path"]).name, facts["fingerprint"]


def _tests(request: RecipeRequest, runs: "list[PlannedRun]") -> list[ScoredSet]:
    """The test sets, with what decides on their scores; UserError (66) if one is not there."""
    checkpoints = {run.name: _checkpoint(run) for run in runs}
    systems = "+".join(checkpoints)
    tests = []
    for name, source, reference in wmtsets.scored(request.job):
        for path in (source, reference):
            if not path.is_file():
                raise UserError(f"{path}: not there; the stage tests makes it", Exit.NO_INPUT)
        inputs = {
            "test": [_sha256(source), _sha256(reference)],
            "systems": checkpoints,
            "bounds": ",".join(map(str, BOUNDS)),
        }
        key = f"{request.runs.resolve()}: {systems}: {name}"
        table = request.runs / "scores" / systems / f"{name}.txt"
        tests.append(ScoredSet(name, source, reference, key, inputs, table))
    return tests


def _checkpoint(run: "PlannedRun") -> str:
    """The hash of the manifest of the checkpoint that translates."""
    from nmt import manifest, modeldir

    return modeldir.reading(run.directory, lambda model: _sha256(model / manifest.NAME))


def _scored(runs: "list[PlannedRun]", test: ScoredSet) -> str:
    """Translate and score a test set; keep its table, numbers and translations; the table."""
    from nmt.compare import text
    from nmt.experiments.evaluate import (
        EvaluationOptions,
        NamedSystem,
        evaluate,
        translations,
    )

    kept = test.table.with_suffix("")
    kept.mkdir(parents=True, exist_ok=True)
    systems = [NamedSystem(run.name, run.directory) for run in runs]
    options = EvaluationOptions(bounds=BOUNDS, keep=kept)
    report = evaluate(systems, test.reference, test.source, options)
    table = text.blocks(report)
    numbers = outputs.of_text(lambda: outputs.as_json(report.to_json()))
    files = [
        (test.table.with_suffix(".json"), numbers),
        (test.table, outputs.of_text(lambda: table)),
    ]
    outputs.write_all([*translations(report, options.kept(systems)), *files])
    return table


def _gpu(settings: Settings) -> bool:
    from nmt.device import pick

    return pick(settings.trainer.device).type == "cuda"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
