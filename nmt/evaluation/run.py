"""One evaluation: systems and test sets, translated, scored by source length, as one Report."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from nmt.decode.engine import LENGTH
from nmt.errors import Exit, UserError
from nmt.evaluation import describe, lost, metrics
from nmt.evaluation.attention import count_attention
from nmt.evaluation.metrics import Floats
from nmt.evaluation.options import LEAST_SAMPLES, TOKENIZERS, USUAL, EvaluationOptions, check_bounds
from nmt.evaluation.report import REFERENCE, SOURCE, Figure, Group, Report, TranslatedTest
from nmt.evaluation.scoring import choose_metrics, score_test
from nmt.evaluation.systems import System, read_model_facts, with_search_settings
from nmt.evaluation.testsets import ParallelFiles, columns_of_test
from nmt.evaluation.translations import (
    count_likelihoods,
    translate_tests,
    translate_with_forced_lengths,
)
from nmt.exchange import ctranslate2_engine
from nmt.exchange.settings import UNNAMED
from nmt.text.columns import missing
from nmt.text.languages import languages_of, short_code
from nmt.text.lines import find_packed, read_parallel, read_text
from nmt.text.side import Segmenter

log = logging.getLogger(__name__)

SLOW_FOR_TER = 250  # words; outputs of 280 to 380 took 6 to 10 s each (AMD Zen 4), of 206 .2 s
RECORDS = {  # forms of lines that are not only text
    "--json": re.compile(r'\{"line": \d+, "source": '),
    "--n-best": re.compile(r"\d+\t\d+\t-?\d+\.\d+\t"),
    "--scores": re.compile(r"-?\d+\.\d+\t"),
}


def evaluate(
    systems: Sequence[System], tests: Sequence[ParallelFiles], options: EvaluationOptions = USUAL
) -> Report:
    """Translate what is not translated yet, score, test each system against the first.

    Raises UserError before the first translation: 2 for what does not fit together, 65 for files of
    unequal lines, 66 for what is not there.
    """
    check(systems, tests, options)
    started = time.monotonic()
    systems = [with_search_settings(system, options.decode) for system in systems]
    read_tests = [read(files, systems, options) for files in tests]
    for test in read_tests:  # refuses what cannot be computed before hours of translation
        test.metrics = choose_metrics(test, options)
    scores = [_read_scores(test, systems, options) for test in read_tests]
    translate_tests(read_tests, systems, options)
    figures = list[Figure]()
    for test, counts in zip(read_tests, scores, strict=True):
        figures += _score(test, systems, options, counts)
    report = Report(
        systems=list(map(describe.describe_system, systems)),
        tests=read_tests,
        figures=figures,
        samples=options.samples,
        seed=options.seed,
        title=options.title,
        date=date.today().isoformat(),
        command=options.command,
        notes=describe.list_notes(systems, read_tests, options),
        about=describe.list_provenance(systems, tests),
    )
    log.info("done in %.0f s", time.monotonic() - started)
    return report


def check(
    systems: Sequence[System], tests: Sequence[ParallelFiles], options: EvaluationOptions
) -> None:
    """Raise UserError for what does not fit together; reads no text and no model."""
    if not systems or not tests:
        raise UserError("no system, or no test set: give models or files, and references")
    if options.bounds:
        check_bounds(options.bounds)
    if options.samples < LEAST_SAMPLES:
        raise UserError(f"samples={options.samples}: give {LEAST_SAMPLES} or more")
    if options.tokenize not in (None, *TOKENIZERS):
        raise UserError(f"tokenize={options.tokenize}: choose from {', '.join(TOKENIZERS)}")
    names = [test.name for test in tests]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice}: two tests of this name; give each its own")
    models = [model for system in systems for model in system.models]
    if models and not all(test.sources for test in tests):
        raise UserError(f"{models[0].typed}: a model needs a text to translate; add --source SRC")
    if options.lost and options.decode.get("length") == "forced":
        raise UserError("decode.length=forced: --lost compares with free lengths; leave it out")
    for model in models if options.perplexity else ():
        if ctranslate2_engine.is_exported(model.path):
            raise UserError(
                f"{model.typed}: --perplexity: CTranslate2 scores otherwise; leave it out"
            )
    of_one_test = [*(str(s.file) for s in systems if s.file), *["--scores"] * bool(options.scores)]
    if len(tests) > 1 and of_one_test:
        raise UserError(f"{of_one_test[0]}: of the lines of one test set; give one")
    if (len(tests) > 1 or tests[0].join > 1) and options.columns:
        raise UserError("--columns: of one test set, whose lines are not joined; give one")
    figures = (*metrics.MODEL_METRICS.values(), lost.LOST, *lost.PART_METRICS, *lost.CAUSE_METRICS)
    taken = {*metrics.METRICS, metrics.RATIO, metrics.REPETITION.name, *(f.name for f in figures)}
    if name := next((name for name, _ in options.scores if name in taken), None):
        raise UserError(f"--scores {name}: the name of another figure; give it its own")


def read(
    files: ParallelFiles, systems: Sequence[System], options: EvaluationOptions
) -> TranslatedTest:
    """Read a test set, with the translations in files; UserError if its systems do not fit it."""
    sources, references, parts = files.read()
    if empty := sum(not line.strip() for line in references):
        log.warning("%s: %d references are empty; all words count as wrong", files.name, empty)
    hypotheses: list[list[list[str]]] = [[] for _ in systems]
    columns: dict[int, Mapping[str, Path]] = {}
    for s, system in enumerate(systems):
        if system.file is not None:
            hypotheses[s] = [_read_translations(system.file, references, files.described)]
        elif system.facts is not None:
            columns[s] = _columns(system, sources, options)
            for path in columns[s].values():
                read_parallel(path, references, files.described)
    if unread := set(options.columns).difference(*(s.facts.columns for s in systems if s.facts)):
        log.warning("--columns: no model reads %s", ", ".join(sorted(unread)))
    by_reference = options.lengths == REFERENCE
    side, texts = (REFERENCE, references) if by_reference else (SOURCE, sources)
    segmenter, unit = _unit(systems, options, side)
    count = segmenter.encode if segmenter else str.split
    language = options.target_language
    return TranslatedTest(
        references=references,
        hypotheses=hypotheses,
        name=files.name,
        about=files.about,
        language=short_code(language) if language else _language(files, systems),
        sources=sources,
        lengths=None if texts is None else [len(count(text)) for text in texts],
        unit=None if texts is None else unit,
        side=side,
        trained=[_longest(system, side, segmenter) for system in systems],
        parts=parts,
        columns=columns,
    )


def _read_translations(path: Path, references: Sequence[str], described: str) -> list[str]:
    """The lines of a file; UserError (65) if they also hold scores, as of nmt-translate --json."""
    lines = read_parallel(path, references, described)
    filled = [line for line in lines if line.strip()]
    for option, form in RECORDS.items():
        if filled and all(map(form.match, filled)):
            raise UserError(
                f"{path}: no plain text, but what nmt-translate {option} writes; leave that out",
                Exit.DATA,
            )
    return lines


def _columns(
    system: System, sources: Sequence[str] | None, options: EvaluationOptions
) -> Mapping[str, Path]:
    """The columns that a model reads; UserError if one is missing."""
    model, reads = system.models[0], system.facts.columns if system.facts else frozenset[str]()
    data, columns = model.settings.data, dict(options.columns)
    if not columns and data.columns and data.test_source and sources is not None:
        text = find_packed(Path(data.test_source))
        if text.is_file() and read_text(text) == sources:
            columns = {name: Path(path) for name, path in columns_of_test(model.settings).items()}
    forced = model.settings.decode.length == "forced"  # else as long as the references
    if absent := missing(reads - ({LENGTH} if forced else set()), columns):
        raise UserError(
            f"{model.typed}: reads the column {', '.join(absent)}, which its config names for its "
            f"own test set only; add --columns {absent[0]}=FILE"
        )
    return {name: path for name, path in columns.items() if name in reads}


def _language(files: ParallelFiles, systems: Sequence[System]) -> str:
    """The target language of the models; UserError for models of several directions."""
    pairs = {languages_of(model.settings) for system in systems for model in system.models}
    pairs = {pair for pair in pairs if UNNAMED not in pair}
    if len(pairs) > 1:
        directions = ", ".join("-".join(pair) for pair in sorted(pairs))
        raise UserError(f"{files.name}: its systems translate {directions}; compare them apart")
    return pairs.pop()[1] if pairs else "en"


def _unit(
    systems: Sequence[System], options: EvaluationOptions, side: str
) -> tuple[Segmenter | None, str]:
    """The unit of lengths: pieces of the model that is named, or else of the first; or words."""
    if options.lengths and options.lengths != REFERENCE:
        model = Path(options.lengths)
        return read_model_facts(model).of(side)[0], f"subword pieces of {model.name}"
    for system in systems:
        if system.facts:
            return system.facts.of(side)[0], f"subword pieces of {system.label}"
    return None, "words (no model to count pieces)"


def _longest(system: System, side: str, counted: Segmenter | None) -> int | None:
    """The longest text of a side in training; None where the unit of lengths is another."""
    if system.facts is None or counted is None:
        return None
    segmenter, longest = system.facts.of(side)
    if longest is not None and segmenter.to_json() != counted.to_json():
        reason = "segments otherwise than lengths are counted; its trained length is not marked"
        log.warning("%s: %s", system.label, reason)
        return None
    if longest is None and side == REFERENCE:
        reason = "its longest target in training is not known, and not marked"
        log.warning("%s: %s", system.label, reason)
    return longest


def _read_scores(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> list[list[dict[str, Floats]]]:
    """The numbers of --scores by system and run; UserError for what does not fit the systems."""
    counts = [[dict[str, Floats]() for _ in system.typed] for system in systems]
    by_label = {system.label: runs for system, runs in zip(systems, counts, strict=True)}
    for (name, label), path in options.scores.items():
        if label not in by_label:
            labels = ", ".join(by_label)
            raise UserError(f"--scores {name}={label}: no such system; there are {labels}")
        if len(by_label[label]) > 1:
            seeds = len(by_label[label])
            raise UserError(f"--scores {name}={label}: has {seeds} seeds; name one run")
        try:
            values = np.array(read_text(path), np.float64)
        except ValueError as error:  # which has the text that is no number
            raise UserError(f"{path}: {error}; give one number a line", Exit.DATA) from None
        lines = len(test.references)
        if len(values) != lines or not np.isfinite(values).all():
            each = f"the test has {lines} lines, and each needs a finite number"
            raise UserError(f"{path}: {len(values)} lines; {each}", Exit.DATA)
        by_label[label][0][name] = np.stack([values, np.ones(lines)], axis=1)
    return counts


def _score(
    test: TranslatedTest,
    systems: Sequence[System],
    options: EvaluationOptions,
    counts: Sequence[Sequence[dict[str, Floats]]],
) -> list[Figure]:
    """Score a translated test; `counts` are those of --scores."""
    log.info("scoring %s: %d pairs", test.name, len(test.references))
    _warn_of_metrics(test, options)
    for s, system in enumerate(systems):
        for run, model in zip(counts[s], system.models if options.perplexity else (), strict=False):
            run[metrics.PERPLEXITY] = count_likelihoods(test, s, system.label, model, options)
        if options.attention and options.bounds and test.sources is not None:
            attention = count_attention(test, s, system, options)
            if attention is not None:
                counts[s][0][metrics.UNATTENDED] = attention
    figures = score_test(test, [system.label for system in systems], options, counts)
    return figures + _divide_losses(test, systems, options) if options.lost else figures


def _warn_of_metrics(test: TranslatedTest, options: EvaluationOptions) -> None:
    """Warn if TER will take long, or BLEU would take a line for one word."""
    whole = test.language in metrics.WHOLE_FOR_MOSES  # each character is a word of TER
    outputs = [line for runs in test.hypotheses for run in runs for line in run]
    slow = sum(len(line if whole else line.split()) > SLOW_FOR_TER for line in outputs)
    if slow and any(metric.name.startswith("TER") for metric in test.metrics):
        log.warning(
            "TER: %s outputs have more than %d %s, each of which takes sacreBLEU seconds; "
            "--metric BLEU,chrF2 leaves it out",
            *(f"{slow:,}", SLOW_FOR_TER, "characters" if whole else "words"),
        )
    tokenizer = metrics.References([], test.language, options.tokenize).tokenizer
    if tokenizer in ("13a", "intl", "none") and metrics.is_unspaced(test.references):
        log.warning(
            "%s: the references have no spaces between words, and tokenizer %s takes a line for "
            "one word; give --target-language zh, ja or ko, or --tokenize char",
            *(test.name, tokenizer),
        )


def _divide_losses(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> list[Figure]:
    """Divide the loss beyond the trained length into its causes, with forced lengths."""
    forced = translate_with_forced_lengths(test, systems, options)
    counts = [
        [
            lost.count_losses(test.references, test.lengths or [], longest or 0, *pair)
            for pair in (zip(free, same, strict=True) if same else ())
        ]
        for free, same, longest in zip(test.hypotheses, forced, test.trained, strict=True)
    ]
    labels = [system.label for system in systems]
    causes = lost.causes_of_loss(test.name, labels, counts, options.samples, options.seed)
    if causes:
        test.metrics += lost.CAUSE_METRICS
    for cause in causes:
        if test.group(cause.group) is None:
            test.groups.append(Group(cause.group, cause.pairs))
    return causes
