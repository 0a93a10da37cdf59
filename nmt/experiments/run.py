"""One run for each encoding at the same budget: planned, trained, translated, several at once."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import __version__, atomic, build, manifest, modeldir
from nmt.compare.ranking import MissingSystem
from nmt.compare.report import ComparedSystem, trained_run
from nmt.config import Files, Settings, freeze
from nmt.data.corpus import read_text
from nmt.data.report import log_remarks
from nmt.errors import Exit, UserError
from nmt.experiments.processes import Job, last_line, run_all, said
from nmt.experiments.texts import columns_named, test_columns, test_texts
from nmt.overrides.compose import Experiment, experiment_of
from nmt.overrides.options import quoted
from nmt.training.progress import METRICS
from nmt.training.run import Outcome, open_run

if TYPE_CHECKING:
    from nmt.data.prepare import Prepared

TRANSLATIONS = "translations"  # in a run directory
TEXT = "text"  # in the record of translations: their SHA-256
ONLY = "test"  # name of the one test set of nmt-compare


class Entrant(NamedTuple):
    """One encoding that takes part."""

    name: str  # of its run
    words: list[str]  # of nmt-train
    asked: Experiment

    @property
    def log(self) -> Path:
        """The file with the output of its training, beside its run."""
        return self.asked.run.with_name(f"{self.name}.log")


class Test(NamedTuple):
    """The test set that all entrants translate."""

    source: Path
    reference: Path
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences


def choices(value: str) -> list[str]:
    """Split `a,b,[a,b]` at the commas outside brackets."""
    return [each.strip() for each in re.split(r",(?![^\[]*\])", value)]


def plan(
    encodings: Sequence[str], words: list[str], runs: Path, lenient: bool = False
) -> tuple[list[Entrant], list[MissingSystem]]:
    """Compose and check a run for each encoding before the first of them starts.

    Raises UserError for the first that is wrong, is in use, or was trained with another config.
    `lenient` (nobody asked for just these) takes those whose config cannot be as missing instead.
    """
    entrants: list[Entrant] = []
    missing: list[MissingSystem] = []
    for encoding in encodings:
        name = encoding.strip("[]").replace(" ", "").replace(",", "+")
        own = [*words, f"encoding={encoding}", f"runs={quoted(runs)}", f"name={quoted(name)}"]
        if any(name == other.name for other in entrants):
            raise UserError(f"encoding={encoding}: named twice; name it once")
        try:
            asked = experiment_of(own)._replace(elsewhere="--runs")
            build.check(asked.settings)
        except UserError as error:
            if not lenient:
                raise
            missing.append(MissingSystem(name, str(error), None))
            continue
        trained(asked)  # refuses the directory of another run
        entrants.append(Entrant(name, own, asked))
    return entrants, missing


def trained(asked: Experiment) -> Outcome | None:
    """How a run ended that has its whole budget behind it, on whatever corpus.

    None if it has not, or never began. Raises UserError for a directory that is in use, damaged,
    or of another config.
    """
    if not asked.run.exists():
        return None
    with open_run(asked.run, asked.settings, elsewhere=asked.elsewhere) as opened:
        return opened.trained(asked.settings)


def finished(asked: Experiment, fingerprint: str) -> Outcome | None:
    """How a run ended that has its whole budget behind it, on the corpus of this fingerprint.

    None if it has not, or never began. Raises what `trained` does, and UserError (65) if it was
    trained on another corpus.
    """
    if not asked.run.exists():
        return None
    with open_run(asked.run, asked.settings, elsewhere=asked.elsewhere) as opened:
        return opened.finished(asked.settings, lambda: fingerprint)


def prepared(entrants: Sequence[Entrant]) -> tuple[Test, dict[str, "Prepared"]]:
    """Prepare the corpus once, before its many readers start; the test set, and data by entrant.

    Raises UserError for a corpus without a whole test set, entrants whose test sets differ, or a
    finished run on another corpus.
    """
    from nmt.data.prepare import prepare

    tests: dict[tuple[bytes, bytes], Test] = {}
    corpora: dict[str, Prepared] = {}
    known: dict[bytes, Prepared] = {}
    for entrant in entrants:
        data, segmenter = entrant.asked.settings.data, entrant.asked.settings.segmenter
        if isinstance(data, Files):
            _refuse_unnamed(data)
        plain = freeze(entrant.asked.settings)
        key = manifest.dump([plain["data"], plain["segmenter"]])
        if key not in known:
            known[key] = prepare(data, segmenter)
            log_remarks(known[key].facts["corpus"])
            source, reference = map(Path, test_texts(entrant.asked.settings))
            test = Test(source, reference)
            for path in (source, reference):
                read_text(path)  # says what is wrong with it before anything is trained
            tests.setdefault((test.source.read_bytes(), test.reference.read_bytes()), test)
        corpora[entrant.name] = known[key]
        finished(entrant.asked, known[key].facts["fingerprint"])
    if len(tests) > 1:
        raise UserError(f"{entrants[0].name} and others have different test sets; compare apart")
    return next(iter(tests.values())), corpora


def _refuse_unnamed(data: Files) -> None:
    """Raise UserError unless the config names all files of the test set."""
    named = {"data.test_source": data.test_source, "data.test_target": data.test_target}
    named |= {f"data.columns.{name}.test": column.test for name, column in data.columns.items()}
    if unnamed := [key for key, path in named.items() if not path]:
        raise UserError(f"{', '.join(unnamed)}: no value; name the test set to compare on")


def train_all(
    entrants: Sequence[Entrant], corpora: Mapping[str, "Prepared"], at_once: int
) -> list[MissingSystem]:
    """Train all that are not finished on their corpora, which are by name.

    Those that failed or stopped early are returned.
    """
    fingerprints = {name: corpus.facts["fingerprint"] for name, corpus in corpora.items()}
    pending = [e for e in entrants if finished(e.asked, fingerprints[e.name]) is None]
    runs = {entrant.name: entrant.asked.run for entrant in pending}
    for run in runs.values():
        run.parent.mkdir(parents=True, exist_ok=True)
    jobs = [Job(e.name, "train", e.words, e.log) for e in pending]
    codes = run_all(jobs, at_once, lambda name: trained_so_far(runs[name])) if jobs else {}
    missing = [_untrained(e, fingerprints[e.name], codes[e.name]) for e in pending]
    return [each for each in missing if each is not None]


def _whole(entrant: Entrant, fingerprint: str) -> str | None:
    """What is wrong with a run whose process ended well, if anything is."""
    try:
        outcome = finished(entrant.asked, fingerprint)
    except UserError as error:
        return str(error)
    return "training stopped before its budget was spent" if outcome is None else None


def _failed(label: str, what: str, code: int, log: Path) -> MissingSystem | None:
    """What to say of a process that did not end well."""
    if not code:
        return None
    return MissingSystem(label, f"{what} failed ({said(code)}): {last_line(log)}", str(log))


def _untrained(entrant: Entrant, fingerprint: str, code: int) -> MissingSystem | None:
    if failed := _failed(entrant.name, "training", code, entrant.log):
        return failed
    wrong = _whole(entrant, fingerprint)
    return None if wrong is None else MissingSystem(entrant.name, wrong, str(entrant.log))


def trained_so_far(run: Path) -> str:
    """The last step of a run, and how perplexed the model was."""
    lines = [line for line in metrics_of(run) if "perplexity" in line]
    if not lines:
        return "starting"
    last = lines[-1]
    return f"step {last['step']}, {last['kind']} perplexity {last['perplexity']:.3f}"


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics; a line that is being written is left out."""
    path = run / METRICS
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in whole]


class Work(NamedTuple):
    """A test set that one model is to translate."""

    entrant: Entrant
    name: str  # of the test set; the translations are NAME.txt, what they were made from NAME.json
    test: Test

    @property
    def text(self) -> Path:
        """Where the translations lie."""
        return self.entrant.asked.run / TRANSLATIONS / f"{self.name}.txt"

    @property
    def record(self) -> Path:
        """What they were made from."""
        return self.text.with_name(f"{self.name}.json")

    @property
    def log(self) -> Path:
        """The output of the process that made them."""
        return self.text.with_name(f"{self.name}.log")


def translate_all(
    entrants: Sequence[Entrant], test: Test, at_once: int
) -> tuple[dict[str, list[str]], list[MissingSystem]]:
    """Translate the test set by each model; translations by name, and those that failed."""
    found, missing = translate_each([Work(e, ONLY, test) for e in entrants], at_once)
    return {e.name: found[e.asked.run, ONLY] for e in entrants if (e.asked.run, ONLY) in found}, [
        each for _, each in missing
    ]


def translate_each(
    works: Sequence[Work], at_once: int
) -> tuple[dict[tuple[Path, str], list[str]], list[tuple[Work, MissingSystem]]]:
    """Translate test sets, each in a process; lines by run and test, and what failed.

    They stay in the run directory, and are made anew only if the checkpoint, the text, the search
    or this program has changed. Raises UserError (65) if somebody changed the translations.
    """
    keys = [_key(work.entrant, work.test) for work in works]
    pending = [(w, key) for w, key in zip(works, keys, strict=True) if _kept(w) != key]
    names = _job_names([work for work, _ in pending])
    jobs = []
    for name, (work, _) in zip(names, pending, strict=True):
        work.text.parent.mkdir(exist_ok=True)
        work.record.unlink(missing_ok=True)
        entrant, test = work.entrant, work.test
        checkpoint, settings = modeldir.locate(entrant.asked.run), entrant.asked.settings
        words = [str(checkpoint), str(test.source), "-o", str(work.text)]
        words += ["--threads", "1", "--device", settings.trainer.device]
        words += test_columns(settings)
        words += ["--by-sentence"] * test.by_sentence
        words += [f"decode.{key}={value}" for key, value in vars(settings.decode).items()]
        jobs.append(Job(name, "translate", words, work.log))
    codes = run_all(jobs, at_once, lambda name: "translating") if jobs else {}
    missing = []
    for name, (work, key) in zip(names, pending, strict=True):
        failed = _failed(work.entrant.name, "translation", codes[name], work.log)
        if failed is None:
            record = {**key, TEXT: _sha256(work.text)}
            atomic.replace(work.record, manifest.dump(record))
        else:
            missing.append((work, failed))
    lost = [work for work, _ in missing]
    found = {(w.entrant.asked.run, w.name): read_text(w.text) for w in works if w not in lost}
    return found, missing


def _job_names(works: Sequence[Work]) -> list[str]:
    """A name for each job: the run's where that tells them apart, else with test, or place."""
    for named in (
        [work.entrant.name for work in works],
        [f"{work.entrant.name} {work.name}" for work in works],
    ):
        if len(set(named)) == len(named):
            return named
    return [f"{work.entrant.asked.run} {work.name}" for work in works]


def _key(entrant: Entrant, test: Test) -> dict[str, Any]:
    """All that a translation depends on."""
    checkpoint, sha256 = modeldir.reading(
        entrant.asked.run, lambda found: (found.name, _sha256(found / manifest.NAME))
    )
    columns = columns_named(",".join(test_columns(entrant.asked.settings)[1:]) or None)
    return {
        "checkpoint": checkpoint,
        "manifest": sha256,
        "source": _sha256(test.source),
        "columns": {name: _sha256(Path(path)) for name, path in columns.items()},
        "decode": freeze(entrant.asked.settings)["decode"],
        "version": __version__,
        **({"by_sentence": True} if test.by_sentence else {}),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _kept(work: Work) -> Any:
    """What the translations that lie there were made from; None if there are none.

    Raises UserError (65) if somebody changed them: they are neither scored nor overwritten.
    """
    if not (work.record.exists() and work.text.exists()):
        return None
    try:
        kept = manifest.parse(work.record.read_bytes(), work.record)
    except UserError:
        return None  # damaged: translate again
    if not isinstance(kept, dict) or TEXT not in kept:
        return None
    if kept.pop(TEXT) != _sha256(work.text):
        raise UserError(
            f"{work.text}: not as nmt-translate wrote it; move it away to translate again",
            Exit.DATA,
        )
    return kept


def compared(entrant: Entrant, corpus: "Prepared", longest: int | None) -> ComparedSystem:
    """What is known of a run beside its scores; `longest`: longest source in its training."""
    settings = entrant.asked.settings
    outcome = finished(entrant.asked, corpus.facts["fingerprint"])
    if outcome is None:
        raise UserError(f"{entrant.asked.run}: has changed meanwhile; try again", Exit.DATA)
    sizes = len(corpus.source.vocabulary), len(corpus.target.vocabulary)
    own, whole = parameters(settings, sizes)
    asked = entrant.asked
    trained = trained_run(str(asked.run), settings.seed, metrics_of(asked.run))
    trained = replace(trained, step=outcome.step, dev_perplexity=outcome.perplexity)
    return ComparedSystem(entrant.name, longest, whole, own, [trained])


def parameters(settings: Settings, sizes: tuple[int, int]) -> tuple[int, int]:
    """Parameters of the encodings, and of the whole model, each counted once."""
    model = build.outline(settings, *sizes)
    own = {p for site in model.sites.values() for p in site.parameters()}
    return sum(p.numel() for p in own), sum(p.numel() for p in model.parameters())


def caption(settings: Settings, jobs: int) -> list[str]:
    """What all models have in common, from the settings of one."""
    model, trainer, decode = settings.model, settings.trainer, settings.decode
    limits = [f"{trainer.max_steps:,} updates"] if trainer.max_steps else []
    limits += [f"{trainer.max_epochs:,} epochs"] if trainer.max_epochs else []
    beam = f"beam search of {decode.beam_size}, alpha {decode.alpha:g}"
    return [
        f"Corpus {settings.data.name}; {model.encoder_layers}+{model.decoder_layers} layers of "
        f"{model.dim}, {model.heads} heads; seed {settings.seed}.",
        f"Training: {' or '.join(limits)} of {trainer.batch_tokens * trainer.accumulate:,} tokens, "
        f"learning rate {settings.optim.lr:g} ({settings.optim.kind}).",
        f"Translation: {'greedy search' if decode.beam_size == 1 else beam}.",
        f"tokens/s: the median that training reported, up to {jobs} processes at once.",
    ]
