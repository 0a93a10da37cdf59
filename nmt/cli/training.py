"""The stages of nmt-recipe that learn: prepare, train, score, through the commands of the house."""

import hashlib
import io
import logging
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import atomic
from nmt.errors import Exit, UserError
from nmt.experiments.processes import cores
from nmt.recipes import estimate, wmtsets
from nmt.recipes.estimate import check_disk
from nmt.recipes.work import RecipeJob

if TYPE_CHECKING:
    from nmt.config import Settings
    from nmt.experiments.run import Entrant
    from nmt.training.run import Outcome

log = logging.getLogger(__name__)
BOUNDS = "25,50,75,100"  # last lengths of the paper's buckets


class Asked(NamedTuple):
    """What the words of nmt-recipe say."""

    job: RecipeJob
    stages: list[str]
    runs: Path
    encodings: str | None  # None: those of the lock file
    words: list[str]  # of nmt-train
    show: str | None  # list or plan, instead of work


def prepare(asked: Asked) -> None:
    """nmt-prepare, its report, and what the limit on length costs beside the paper."""
    from nmt.data.cache import damage

    job, settings = asked.job, _settings(asked)
    ledger, inputs = job.ledger("prepare"), _inputs(job, settings)
    if (facts := ledger.done("prepared", inputs)) and damage(Path(facts["path"])) is None:
        log.info("prepare: nothing to do; %s is as it was", facts["path"])
        return
    needed = estimate.of_prepare(job, settings, cores())
    log.info("prepare: %s", needed)
    check_disk(Path(settings.data.cache), "prepare", needed)
    log.info("  nmt-prepare %s", shlex.join(_words(asked)))
    from nmt.data.prepare import prepare as make
    from nmt.data.prepare import report
    from nmt.data.report import describe
    from nmt.recipes import loss

    prepared = make(settings.data, settings.segmenter)
    told = report(prepared.path)
    found = loss.loss(prepared.train, told, settings.data.max_length)
    sys.stdout.write(f"{describe(told)}\n\n{loss.describe(found, job.lock.paper)}\n")
    sys.stdout.write(f"{prepared.path}\n")
    sys.stdout.flush()
    files = [prepared.path / name for name in ("report.json", "facts.json", "manifest.json")]
    which = {
        "path": str(prepared.path.resolve()),
        "fingerprint": prepared.facts["fingerprint"],
    }
    facts = which | found._asdict()
    ledger.note("prepared", inputs, files, facts)


def train(asked: Asked) -> None:
    """nmt-train for each encoding, one after another; finished runs are not touched."""
    from nmt.cli.train import train as one

    job, settings = asked.job, _settings(asked)
    corpus, fingerprint = _prepared(job, settings)
    entrants = _entrants(asked)
    todo = []
    for entrant in entrants:
        inputs = _trained(entrant, corpus)
        outcome = _finished(entrant, fingerprint)
        if outcome is None:
            todo.append(entrant)
        else:
            log.info("train: nothing to do for %s; %s", entrant.name, outcome)
            _note(job, entrant, inputs)
    gpu = _gpu(settings)
    if todo:
        one_run = estimate.of_train(job, settings, gpu)
        needed = one_run._replace(
            disk=one_run.disk * len(todo), seconds=one_run.seconds * len(todo)
        )
        where = "a GPU" if gpu else "the CPU"
        log.info("train: %d runs on %s, %s", len(todo), where, needed)
        check_disk(asked.runs, "train", needed)
    for entrant in todo:
        log.info("  nmt-train %s", shlex.join(entrant.words))
        one(entrant.asked)
        _note(job, entrant, _trained(entrant, corpus))


def score(asked: Asked) -> None:
    """nmt-evaluate on each test set, by the paper's buckets; tables to stdout."""
    job, settings, entrants = asked.job, _settings(asked), _entrants(asked)
    known = job.ledger("prepare").facts_or_none("prepared")  # the corpus itself may be gone
    for entrant in entrants:
        if _finished(entrant, known["fingerprint"] if known else None) is None:
            raise UserError(
                f"{entrant.asked.run}: not trained yet; the stage train does that", Exit.NO_INPUT
            )
    checkpoints = {entrant.name: _checkpoint(entrant) for entrant in entrants}
    sets = wmtsets.scored(job)
    for path in (path for _, *sides in sets for path in sides):
        if not path.is_file():
            raise UserError(f"{path}: not there; the stage tests makes it", Exit.NO_INPUT)
    ledger = job.ledger("score")
    todo = []
    for name, source, reference in sets:
        inputs = {
            "test": [_sha256(source), _sha256(reference)],
            "systems": checkpoints,
            "bounds": BOUNDS,
        }
        key = f"{asked.runs.resolve()}: {'+'.join(checkpoints)}: {name}"
        table = asked.runs / "scores" / "+".join(checkpoints) / f"{name}.txt"
        if ledger.done(key, inputs) is None:
            todo.append((name, source, reference, key, inputs, table))
        else:
            log.info("score: nothing to do for %s; %s:", name, table)
            sys.stdout.write(f"{name}\n{table.read_bytes().decode()}\n")
    if todo:
        lines = sum(source.read_bytes().count(b"\n") for _, source, *_ in todo)
        needed = estimate.of_score(lines, settings, len(entrants), _gpu(settings))
        log.info("score: %d test sets, %s", len(todo), needed)
        check_disk(asked.runs, "score", needed)
    for name, source, reference, key, inputs, table in todo:
        text = _evaluated(entrants, source, reference, table)
        sys.stdout.write(f"{name}\n{text}\n")
        sys.stdout.flush()
        ledger.note(key, inputs, [table, table.with_suffix(".json")], {"table": str(table)})


STAGES: dict[str, Callable[[Asked], None]] = {"prepare": prepare, "train": train, "score": score}


def foreseen(asked: Asked, stage: str) -> str:
    """What a stage will take, as far as that can be told now."""
    job, settings = asked.job, _settings(asked)
    if stage == "prepare":
        return str(estimate.of_prepare(job, settings, cores()))
    count = len(_chosen(asked))
    if stage == "train":
        one = estimate.of_train(job, settings, _gpu(settings))
        return f"{count} runs, each {one}"
    names = [*job.lock.test, *job.lock.all]
    lines = sum(job.lock.sets[name].lines or 2000 for name in names)
    return str(estimate.of_score(lines * 3 // 2, settings, count, _gpu(settings)))


def _words(asked: Asked, training: bool = False) -> list[str]:
    from nmt.overrides.options import quoted

    lock = asked.job.lock
    root = f"data.root={quoted(asked.job.root)}"
    return [*lock.words, *(lock.training if training else ()), root, *asked.words]


def _settings(asked: Asked) -> "Settings":
    from nmt.overrides.compose import experiment_of

    return experiment_of(_words(asked, training=True)).settings


def _chosen(asked: Asked) -> list[str]:
    from nmt.experiments.run import choices

    return choices(asked.encodings) if asked.encodings else list(asked.job.lock.encodings)


def _entrants(asked: Asked) -> "list[Entrant]":
    from nmt.experiments.run import plan

    return plan(_chosen(asked), _words(asked, training=True), asked.runs)[0]


def _inputs(job: RecipeJob, settings: "Settings") -> dict[str, Any]:
    """What decides on the prepared corpus; UserError (66) if its text is not there yet."""
    from nmt.config import freeze

    plain = freeze(settings)
    texts = {}
    for stage, item in (("corpus", "train"), ("tests", "dev")):
        ledger = job.ledger(stage)
        ledger.facts(item, stage)
        texts[item] = ledger.outputs(item)
    return {"texts": texts, "data": plain["data"], "segmenter": plain["segmenter"]}


def _prepared(job: RecipeJob, settings: "Settings") -> tuple[str, str]:
    """Name and fingerprint of the prepared corpus; UserError (66) if it is not there yet."""
    ledger = job.ledger("prepare")
    facts = ledger.done("prepared", _inputs(job, settings))
    if facts is None:
        raise UserError(
            f"{job.root}: not prepared with these words; the stage prepare does that",
            Exit.NO_INPUT,
        )
    return Path(facts["path"]).name, facts["fingerprint"]


def _finished(entrant: "Entrant", fingerprint: str | None) -> "Outcome | None":
    """How a run ended; UserError (65) if on another corpus, which None does not look at."""
    from nmt.experiments.run import finished, trained

    if fingerprint is None:
        return trained(entrant.asked)
    return finished(entrant.asked, fingerprint)


def _trained(entrant: "Entrant", corpus: str) -> dict[str, Any]:
    from nmt.config import freeze

    return {"corpus": corpus, "settings": freeze(entrant.asked.settings)}


def _key(entrant: "Entrant") -> str:
    return str(entrant.asked.run.resolve())


def _note(job: RecipeJob, entrant: "Entrant", inputs: dict[str, Any]) -> None:
    facts = {"checkpoint": _checkpoint(entrant)}
    job.ledger("train").note(_key(entrant), inputs, [entrant.asked.run / "config.json"], facts)


def _checkpoint(entrant: "Entrant") -> str:
    """The hash of the manifest of the checkpoint that translates."""
    from nmt import manifest, modeldir

    return modeldir.reading(entrant.asked.run, lambda found: _sha256(found / manifest.NAME))


def _evaluated(entrants: "list[Entrant]", source: Path, reference: Path, table: Path) -> str:
    """Run nmt-evaluate; keep its table and numbers, and give the table."""
    from nmt.cli.evaluate import command as evaluate

    table.parent.mkdir(parents=True, exist_ok=True)
    words = [f"{entrant.name}={entrant.asked.run}" for entrant in entrants]
    words += ["--source", str(source), "--reference", str(reference), "--bounds", BOUNDS]
    words += ["--json", str(table.with_suffix(".json"))]
    words += ["--output-dir", str(table.with_suffix(""))]
    log.info("  nmt-evaluate %s", shlex.join(words))
    with redirect_stdout(io.StringIO()) as out:
        evaluate(words)
    atomic.replace(table, out.getvalue().encode())
    return out.getvalue()


def _gpu(settings: "Settings") -> bool:
    from nmt.device import pick

    return pick(settings.trainer.device).type == "cuda"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
