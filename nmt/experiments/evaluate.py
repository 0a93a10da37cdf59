"""One evaluation: systems and test sets, translated, scored by source length, as one Report."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from nmt.compare import buckets, published, scores
from nmt.compare.diagnosis import diagnose
from nmt.compare.likelihood import with_perplexities
from nmt.compare.losses import loss_parts
from nmt.compare.report import PaperTable, Report, ScoredTest
from nmt.compare.scoring import Bootstrap, TranslatedTest, scorers_of
from nmt.decode.forced import GivenTranslation
from nmt.errors import UserError
from nmt.exchange import ctranslate2_engine
from nmt.experiments import models, reading, testsets
from nmt.experiments.options import DEFAULTS, LEAST_SAMPLES, TOKENIZERS, EvaluationOptions
from nmt.experiments.systems import System
from nmt.experiments.testsets import ParallelFiles

log = logging.getLogger(__name__)

SLOW_FOR_TER = 250  # words; outputs of 280 to 380 took 6 to 10 s each (AMD Zen 4), of 206 .2 s


def evaluate(
    systems: Sequence[System],
    tests: Sequence[ParallelFiles],
    options: EvaluationOptions = DEFAULTS,
    tables: Sequence[PaperTable] = (),
) -> Report:
    """Translate what is not translated yet, score, test each system against the first.

    `tables`: layouts of the report. What does not fit together is said before the first
    translation. Raises UserError: 2 for that, 65 for files of unequal lines, 66 for what is not
    there.
    """
    check(systems, tests, options)
    started = time.monotonic()
    if options.by_sentence:
        tests = testsets.read_by_sentence(tests)
    systems = [models.with_search_settings(system, options.decode) for system in systems]
    read_tests = [read for test in tests for read in reading.read(test, systems, tables, options)]
    bootstrap = Bootstrap(list(options.bounds), options.samples, options.seed, options.jobs)
    for read in read_tests:  # metrics that cannot be had are said before hours of translation
        scorers_of(read.test._replace(references=[""]), bootstrap)
    read_tests = models.translated(read_tests, systems, options)
    scored = []
    references: Sequence[Sequence[Sequence[GivenTranslation | None]]] = ()  # by system and run
    for read in read_tests:
        test = read.test
        log.info("scoring %s: %d pairs", test.name, len(test.references))
        if is_first := test.name == read.files.name:  # not again, by reference length
            _warn_of_slow_ter(test)
        scored_test = reading.with_lines(_scored(test, bootstrap, systems, tables), test)
        if not is_first:  # places are the same
            scored_test = replace(scored_test, places=[])
        if options.perplexity:
            if is_first:
                references = models.scored_references(read, systems, options)
            scored_test = with_perplexities(scored_test, test.lengths or [], references)
        if options.lost:
            forced = models.with_forced_lengths(read, systems, options)
            scored_test = replace(scored_test, losses=loss_parts(test, forced, bootstrap))
        scored.append(scored_test)
    report = Report(
        systems=reading.compared(systems, [read.test for read in read_tests]),
        tests=scored,
        samples=options.samples,
        seed=options.seed,
        title=options.title,
        date=date.today().isoformat(),
        command=options.command,
        tables=list(tables),
        about=reading.provenance_of(systems, [read.files for read in read_tests]),
    )
    if options.attention:
        report = models.with_attention(report, systems, read_tests, options)
    report = replace(report, notes=reading.notes(report, systems, read_tests, options))
    log.info("done in %.0f s", time.monotonic() - started)
    return report


def check(
    systems: Sequence[System], tests: Sequence[ParallelFiles], options: EvaluationOptions
) -> None:
    """Raise UserError for what does not fit together; reads no text and no model."""
    if not systems:
        raise UserError("no system: give models or files")
    buckets.check_bounds(options.bounds, "bounds=")
    if options.samples < LEAST_SAMPLES:
        raise UserError(f"samples={options.samples}: give {LEAST_SAMPLES} or more")
    if options.tokenize not in (None, *TOKENIZERS):
        raise UserError(f"tokenize={options.tokenize}: choose from {', '.join(TOKENIZERS)}")
    if unknown := [m for m in options.metrics or () if m not in scores.NAMES]:
        raise UserError(f"metrics: no metric {unknown[0]!r}; choose from {', '.join(scores.NAMES)}")
    names = [test.name for test in tests]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice}: two tests of this name; give each its own")
    models = [model for system in systems for model in system.models]
    unread = next((test for test in tests if test.source is None), None)
    if models and unread:
        raise UserError(f"{models[0].place}: a model needs a text to translate; add --source SRC")
    if options.decode and not models:
        key, value = next(iter(options.decode.items()))
        raise UserError(f"decode.{key}={value}: none of the systems is a model; leave it out")
    if options.lengths and unread:
        raise UserError(f"--lengths {options.lengths}: no text to count in; add --source SRC")
    if options.perplexity and not models:
        raise UserError("--perplexity: none of the systems is a model; leave it out")
    if options.lost and not models:
        raise UserError("--lost: none of the systems is a model; leave it out")
    if options.lost and options.decode.get("length") == "forced":
        raise UserError("decode.length=forced: --lost compares with free lengths; leave it out")
    for model in models if options.perplexity else ():
        if len(model.paths) > 1:
            raise UserError(f"{model.place}: --perplexity: of single models only; leave it out")
        if ctranslate2_engine.is_exported(model.paths[0]):
            raise UserError(
                f"{model.place}: --perplexity: CTranslate2 scores otherwise; name the model that "
                "was exported, or leave it out"
            )
    if options.by_sentence and not (models or options.lengths):
        raise UserError("--by-sentence: no model reads the text; give one, or --lengths MODEL")
    if len(tests) > 1 and (file := next((s.file for s in systems if s.file), None)):
        raise UserError(f"{file}: a file has the translations of one test set; give one")
    if len(tests) > 1 and options.columns:
        raise UserError("--columns: of one test set; give one")


def _warn_of_slow_ter(test: TranslatedTest) -> None:
    """Say that TER of outputs that run on takes long, before it does."""
    if not any(name.startswith("TER") for name in test.metrics or scores.DEFAULTS):
        return
    outputs = (line for runs in test.hypotheses for run in runs for line in run)
    whole = test.language in scores.WHOLE_FOR_MOSES  # each character is a word of TER
    if slow := sum(len(line if whole else line.split()) > SLOW_FOR_TER for line in outputs):
        log.warning(
            "TER: %s outputs have more than %d %s, each of which takes sacreBLEU seconds; "
            "--metric BLEU,chrF2 leaves it out",
            *(f"{slow:,}", SLOW_FOR_TER, "characters" if whole else "words"),
        )


def _scored(
    test: TranslatedTest,
    bootstrap: Bootstrap,
    systems: Sequence[System],
    tables: Sequence[PaperTable],
) -> ScoredTest:
    """Scores, signs of under-translation and examples, with the paper's numbers where known."""
    scored = diagnose(test, bootstrap)
    for table in tables:
        if table.test == scored.name and table.published:
            scored = published.with_published(scored, table, [s.published for s in systems])
    return scored
