"""From finished runs and test sets to one report: translate, score, diagnose."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import modeldir
from nmt.compare import published
from nmt.compare.attention import SAMPLE
from nmt.compare.diagnosis import diagnose
from nmt.compare.report import (
    AttentionProfile,
    ComparedSystem,
    PaperTable,
    Report,
    trained_run,
)
from nmt.compare.scores import NAMES, UNSPACED
from nmt.compare.scoring import Bootstrap, JoinedParts, TranslatedTest, score
from nmt.config import Files, freeze
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.data.seams import pieces_of
from nmt.device import limit_threads
from nmt.errors import Exit, UserError
from nmt.experiments.columns import columns_of_test, with_columns
from nmt.experiments.facts import parameters, search_of
from nmt.experiments.outputs import sources
from nmt.experiments.plan import PlannedRun
from nmt.experiments.processes import gpus
from nmt.experiments.systems import SeededSystem, few
from nmt.experiments.testsets import ParallelFiles
from nmt.experiments.translate import KeptTranslation, translate_all
from nmt.training.progress import METRICS, read_metrics

if TYPE_CHECKING:
    from nmt.data.segmenter import Segmenter

log = logging.getLogger(__name__)

SEED = 12345  # of the bootstrap and of the sample of sentences, as in nmt-evaluate
PIECES, WORDS = "subword pieces of the source", "words of the reference"
MOSES = "-moses"  # ends the names of metrics on text tokenised by Moses

Translations = dict[tuple[Path, str], list[str]]  # by run directory and test


class ReportOptions(NamedTuple):
    """What a report shows, and how sure it is."""

    bounds: list[int]  # last source length of each bucket
    samples: int  # of the bootstrap
    jobs: int  # processes at once
    attention: bool = True  # observe the attention of the models
    signs: bool = True  # of under-translation, and examples
    metrics: Sequence[str] = ()  # besides those of the tables; the first is the main one
    reference_words: bool = False  # lengths are words of the reference, not pieces of the source


class ReportedTest(NamedTuple):
    """A test set in memory, with the systems that translate it."""

    files: ParallelFiles
    sources: list[str]
    references: list[str]
    parts: JoinedParts | None
    systems: list[int]
    language: str  # of the references


class ModelFacts(NamedTuple):
    """What a system's first model tells."""

    parameters: int
    encoding_parameters: int
    longest: int | None  # longest source in training, in its own pieces; None: unknown
    segmenter: "Segmenter"  # of the source


def report(
    title: str,
    command: str,
    notes: list[str],
    systems: list[SeededSystem],
    tests: list[ParallelFiles],
    tables: list[PaperTable],
    options: ReportOptions,
) -> Report:
    """Translate what is not translated yet, score, diagnose.

    A test is translated by the systems of the tables that name it; one that no table names, by
    all. What does not fit together is said before the first translation. Raises UserError: 2 for
    that, 65 for sides of unequal lines, 70 where a model could not translate.
    """
    _check(systems, tests, tables)
    loaded = [_load(test, systems, tables) for test in tests]
    lines = _translations(systems, loaded, options.jobs)
    facts = [_facts(system.runs[0]) for system in systems]
    translated = [_test(test, systems, tables, facts, lines, options) for test in loaded]
    made = Report(
        systems=_systems(systems, translated, facts),
        tests=[],
        samples=options.samples,
        seed=SEED,
        title=title,
        date=date.today().isoformat(),
        command=command,
        notes=[*notes, *_notes(systems, tests, tables, options)],
        tables=tables,
        about=_about(systems, tests),
    )
    how = Bootstrap(options.bounds, options.samples, SEED, options.jobs)
    for test in translated:
        log.info("scoring %s: %d pairs", test.name, len(test.references))
        scored = diagnose(test, how) if options.signs else score(test, how)
        for table in tables:
            if table.test == scored.name and table.published:
                keys = [system.published for system in systems]
                scored = published.with_published(scored, table, keys)
        made = replace(made, tests=[*made.tests, scored])
    if options.attention:
        limit_threads(options.jobs)
        made = _observed(made, systems, translated)
    return made


def _check(
    systems: list[SeededSystem], tests: list[ParallelFiles], tables: list[PaperTable]
) -> None:
    """Raise UserError for what does not fit together."""
    if not systems or not tests:
        raise UserError(f"nothing to report: {'no test set' if systems else 'no run'} is named")
    for kind, names in (
        ("systems", [system.label for system in systems]),
        ("tests", [test.name for test in tests]),
    ):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"{twice}: two {kind} of this name; give each its own")
    for table in tables:
        if table.test not in [test.name for test in tests]:
            raise UserError(f"{table.name}: no test {table.test!r} is asked for")
        if wrong := [m for m in table.metrics if m not in NAMES]:
            raise UserError(f"{table.name}: no metric {wrong[0]!r}; choose from {', '.join(NAMES)}")
        if not table.systems or not table.metrics or max(table.systems) >= len(systems):
            raise UserError(f"{table.name}: name its systems and metrics")
        if table.published and published.table_of(table.name, table.test) is None:
            raise UserError(
                f"{table.name}: no such table in the paper; {', '.join(published.tables())}"
            )


def _load(
    test: ParallelFiles, systems: list[SeededSystem], tables: list[PaperTable]
) -> ReportedTest:
    """Read a test set and see that its systems can translate it, and its metrics score it.

    Raises UserError: 65 for sides of unequal lines, 2 for systems or metrics that do not fit.
    """
    named = {s for table in tables if table.test == test.name for s in table.systems}
    translators = sorted(named) or list(range(len(systems)))
    sources, references = test.read()
    runs = [run for s in translators for run in systems[s].runs]
    corpora = [run.settings.data for run in runs]
    pairs = {(data.source_language, data.target_language) for data in corpora}
    if len(pairs) > 1:
        directions = ", ".join("-".join(pair) for pair in sorted(pairs))
        raise UserError(f"{test.name}: its systems translate {directions}; compare them apart")
    for run in runs:
        _check_columns(run, test)
    language = pairs.pop()[1]
    for table in tables:
        moses = next((metric for metric in table.metrics if metric.endswith(MOSES)), None)
        if table.test == test.name and moses and language in UNSPACED:
            plain = moses.removesuffix(MOSES)
            raise UserError(f"{table.name}: Moses does not segment {language}; use {plain}")
    parts = joined.parts_of(test.source, test.reference)
    if test.by_sentence:
        sources = list(joined.by_sentence(test.source))
    return ReportedTest(test, sources, references, parts, translators, language)


def _check_columns(run: PlannedRun, test: ParallelFiles) -> None:
    """Integers beside the source are known for the run's own test set alone."""
    data = run.settings.data
    if not isinstance(data, Files) or not data.columns:
        return
    own = Path(data.test_source) if data.test_source else None
    if own is None or not own.is_file() or own.read_bytes() != test.source.read_bytes():
        raise UserError(
            f"{run.directory}: reads {', '.join(data.columns)} beside the text, which its "
            f"config names for its own test set only, and {test.name} is another; leave it out"
        )


def _translations(
    systems: list[SeededSystem], tests: list[ReportedTest], jobs: int
) -> Translations:
    """All translations; raises UserError (70) if one cannot be made."""
    wanted = [
        KeptTranslation(run, test.files)
        for s in range(len(systems))
        for run in systems[s].runs
        for test in tests
        if s in test.systems
    ]
    lines, missing = translate_all(wanted, _at_once(wanted, jobs))
    if missing:
        reasons = [f"{each.run.directory}: {m.why}; see {m.log}" for each, m in missing]
        raise UserError(few(reasons), Exit.DIVERGED)
    return lines


def _at_once(translations: list[KeptTranslation], jobs: int) -> int:
    """Processes that translate: where they compute on GPUs, one for each of these."""
    if all(each.run.settings.trainer.device == "cpu" for each in translations):
        return jobs
    return min(jobs, len(gpus()) or jobs)


def _facts(run: PlannedRun) -> ModelFacts:
    """Read what a model tells of itself; the weights are not kept."""
    trained = modeldir.load(run.directory, "cpu")
    sizes = len(trained.source.vocabulary), len(trained.target.vocabulary)
    of_encodings, of_model = parameters(trained.settings, sizes)
    longest = trained.facts["longest_source"]
    return ModelFacts(of_model, of_encodings, longest, trained.source.segmenter)


def _lengths(test: ReportedTest, facts: list[ModelFacts]) -> list[int]:
    """Source lengths, counted as the first system that translates the test does."""
    segmenter = facts[test.systems[0]].segmenter
    return [len(pieces_of(segmenter, line)) for line in test.sources]


def _longest(test: ReportedTest, facts: list[ModelFacts]) -> list[int | None]:
    """By system: longest source in training, where its pieces are those that were counted."""
    counted = facts[test.systems[0]].segmenter.to_json()
    return [
        model.longest if s in test.systems and model.segmenter.to_json() == counted else None
        for s, model in enumerate(facts)
    ]


def _systems(
    systems: list[SeededSystem], tests: list[TranslatedTest], facts: list[ModelFacts]
) -> list[ComparedSystem]:
    shown = []
    for s, (system, model) in enumerate(zip(systems, facts, strict=True)):
        limits = [test.longest_trained[s] for test in tests]
        limit = next((limit for limit in limits if limit is not None), None)
        if limit is None and tests[0].unit == PIECES:
            log.warning(
                "%s: segments otherwise than lengths are counted; its trained length is not marked",
                system.label,
            )
        runs = [
            trained_run(str(run.directory), run.settings.seed, _metrics(run.directory))
            for run in system.runs
        ]
        sizes = model.parameters, model.encoding_parameters
        shown.append(ComparedSystem(system.label, limit, *sizes, runs))
    return shown


def _metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, as far as they can be read."""
    lines, remark = read_metrics(run / METRICS)
    if remark:
        log.warning("%s: %s; left out of the report", run / METRICS, remark)
    return lines


def _test(
    test: ReportedTest,
    systems: list[SeededSystem],
    tables: list[PaperTable],
    facts: list[ModelFacts],
    lines: Translations,
    options: ReportOptions,
) -> TranslatedTest:
    """A test set with everybody's translations."""
    name = test.files.name
    hypotheses: list[list[list[str]]] = [[] for _ in systems]
    for s in test.systems:
        hypotheses[s] = [lines[run.directory, name] for run in systems[s].runs]
    lengths, longest = _lengths(test, facts), _longest(test, facts)
    if options.reference_words:
        lengths = [len(line.split()) for line in test.references]
        longest = [None for _ in systems]
    of_tables = [m for table in tables if table.test == name for m in table.metrics]
    return TranslatedTest(
        name=name,
        about=test.files.about,
        sources=test.sources,
        references=test.references,
        parts=test.parts,
        language=test.language,
        lengths=lengths,
        unit=WORDS if options.reference_words else PIECES,
        longest_trained=longest,
        hypotheses=hypotheses,
        metrics=[*of_tables, *options.metrics],
    )


def _observed(
    made: Report, systems: list[SeededSystem], translated: list[TranslatedTest]
) -> Report:
    """The report with attention statistics of each system's first run."""
    from nmt.compare import attention

    tests, profiles = list(made.tests), list[AttentionProfile]()
    for s, system in enumerate(systems):
        run = system.runs[0]
        log.info("observing the attention of %s", run.directory)
        trained = modeldir.load(run.directory, run.settings.trainer.device)
        files = columns_of_test(run.settings)
        given = {name: read_text(Path(path)) for name, path in files.items()}
        for t, test in enumerate(translated):
            if not test.hypotheses[s]:
                continue
            _, beside = with_columns(
                trained.model.columns, trained.settings, test.sources or [], given
            )
            columns = {name: list(column) for name, column in beside.items()}
            tests[t], profile = attention.observe(trained, tests[t], test, s, columns, SEED)
            profiles += profile
    return replace(made, tests=tests, profiles=profiles)


def _notes(
    systems: Sequence[SeededSystem],
    tests: Sequence[ParallelFiles],
    tables: Sequence[PaperTable],
    options: ReportOptions,
) -> list[str]:
    """How the numbers came about, as far as these functions know."""
    searches: dict[str, list[str]] = {}
    for system in systems:
        searches.setdefault(search_of(system.runs[0].settings), []).append(system.label)
    described = [
        search if len(searches) == 1 else f"{search} ({', '.join(labels)})"
        for search, labels in searches.items()
    ]
    notes = [f"Translation: {'; '.join(described)}."]
    if apart := [test.name for test in tests if test.by_sentence]:
        notes.append(
            f"Each joined line of {', '.join(apart)} is read as the pieces of its sentences."
        )
    if any(table.published for table in tables):
        notes.append(
            "The paper's BLEU (cased) and TER (by TERCom) are of tokenised text, as BLEU-moses and "
            "TER-moses here; it does not say which tokeniser, nor whether TER heeds case, which "
            "ours does not."
        )
    if not options.signs:
        return notes
    notes.append(
        "Examples are of the first run of each system; their chrF2 is of the single sentence."
    )
    if options.attention:
        notes.append(
            "Attention (distances, coverage, source never attended) is of the first run of each "
            f"system, on up to {SAMPLE} sentences of each length group, drawn by seed "
            f"{SEED}, the same for all systems."
        )
    return notes


def _about(systems: Sequence[SeededSystem], tests: Sequence[ParallelFiles]) -> dict[str, Any]:
    files: dict[str, Path | None] = {}
    for test in tests:
        files |= {f"{test.name} source": test.source, f"{test.name} reference": test.reference}
    settings = {system.label: freeze(system.runs[0].settings) for system in systems}
    return {**sources(files), "settings": settings}
