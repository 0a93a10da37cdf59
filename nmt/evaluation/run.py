"""One evaluation: systems and test sets, translated, scored by source length, as one Report."""

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from nmt.decode.sources import LENGTH
from nmt.errors import Exit, UserError
from nmt.evaluation import lost, metrics, models
from nmt.evaluation.describe import compared, notes, provenance_of
from nmt.evaluation.facts import facts_at
from nmt.evaluation.groups import check_bounds
from nmt.evaluation.models import ReadTest
from nmt.evaluation.options import LEAST_SAMPLES, TOKENIZERS, USUAL, EvaluationOptions
from nmt.evaluation.report import REFERENCE, Figure, Group, Report, ScoredTest
from nmt.evaluation.scoring import TranslatedTest, score_test, scorers_of
from nmt.evaluation.significance import Floats
from nmt.evaluation.systems import ModelFacts, System, SystemModel
from nmt.evaluation.testsets import ParallelFiles, columns_of_test
from nmt.exchange import ctranslate2_engine
from nmt.exchange.settings import UNNAMED
from nmt.text.columns import missing
from nmt.text.languages import languages_of, short_code
from nmt.text.lines import file_of, packed, read_parallel, read_text
from nmt.text.side import Segmenter

log = logging.getLogger(__name__)

SLOW_FOR_TER = 250  # words; outputs of 280 to 380 took 6 to 10 s each (AMD Zen 4), of 206 .2 s
RECORDS = {  # lines that are no text alone
    "--json": re.compile(r'\{"line": \d+, "source": '),
    "--n-best": re.compile(r"\d+\t\d+\t-?\d+\.\d+\t"),
    "--scores": re.compile(r"-?\d+\.\d+\t"),
}
PIECES = "subword pieces of {}"
WORDS = "words (no model to count pieces)"


def evaluate(
    systems: Sequence[System],
    tests: Sequence[ParallelFiles],
    options: EvaluationOptions = USUAL,
) -> Report:
    """Translate what is not translated yet, score, test each system against the first.

    What does not fit together is said before the first translation. Raises UserError: 2 for that,
    65 for files of unequal lines, 66 for what is not there.
    """
    check(systems, tests, options)
    started = time.monotonic()
    systems = [models.with_search_settings(system, options.decode) for system in systems]
    read_tests = [read(test, systems, options) for test in tests]
    for one in read_tests:  # metrics that cannot be had are said before hours of translation
        scorers_of(one.test._replace(references=[""]), options)
    given = [_read_scores(one.test, systems, options) for one in read_tests]
    found = models.translate_tests(read_tests, systems, options)
    scored, figures = list[ScoredTest](), list[Figure]()
    for number, by_system in enumerate(found):
        both = zip(read_tests[number].test.hypotheses, by_system, strict=True)
        test = read_tests[number].test._replace(hypotheses=[file + own for file, own in both])
        read_tests[number] = read_tests[number]._replace(test=test)
        scored_test, rows = _score(read_tests[number], systems, options, given[number])
        scored.append(scored_test)
        figures += rows
    report = Report(
        systems=compared(systems, [one.test for one in read_tests]),
        tests=scored,
        figures=figures,
        samples=options.samples,
        seed=options.seed,
        title=options.title,
        date=date.today().isoformat(),
        command=options.command,
        notes=notes(systems, [one.test for one in read_tests], options),
        about=provenance_of(systems, tests),
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
        check_bounds(options.bounds, "bounds=")
    if options.samples < LEAST_SAMPLES:
        raise UserError(f"samples={options.samples}: give {LEAST_SAMPLES} or more")
    if options.tokenize not in (None, *TOKENIZERS):
        raise UserError(f"tokenize={options.tokenize}: choose from {', '.join(TOKENIZERS)}")
    if unknown := [m for m in options.metrics or () if m not in metrics.NAMES]:
        raise UserError(
            f"metrics: no metric {unknown[0]!r}; choose from {', '.join(metrics.NAMES)}"
        )
    names = [test.name for test in tests]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice}: two tests of this name; give each its own")
    trained = [model for system in systems for model in system.models]
    unread = next((test for test in tests if not test.sources), None)
    if trained and unread:
        raise UserError(f"{trained[0].place}: a model needs a text to translate; add --source SRC")
    if options.lengths not in (None, REFERENCE) and unread:
        raise UserError(f"--lengths {options.lengths}: no text to count in; add --source SRC")
    if options.lost and options.decode.get("length") == "forced":
        raise UserError("decode.length=forced: --lost compares with free lengths; leave it out")
    for model in trained if options.perplexity else ():
        if len(model.paths) > 1:
            raise UserError(f"{model.place}: --perplexity: of single models only; leave it out")
        if ctranslate2_engine.is_exported(model.paths[0]):
            raise UserError(
                f"{model.place}: --perplexity: CTranslate2 scores otherwise; name the model that "
                "was exported, or leave it out"
            )
    if len(tests) > 1 and (file := next((s.file for s in systems if s.file), None)):
        raise UserError(f"{file}: a file has the translations of one test set; give one")
    if (len(tests) > 1 or tests[0].join > 1) and options.columns:
        raise UserError("--columns: of one test set, whose lines are not joined; give one")
    if len(tests) > 1 and options.scores:
        raise UserError("--scores: of the lines of one test set; give one")
    others = (lost.LOST, *lost.PLACE_METRICS, *lost.CAUSE_METRICS)
    ours = {*metrics.NAMES, *metrics.GIVEN, metrics.RATIO, *(metric.name for metric in others)}
    if taken := next((name for name, _ in options.scores if name in ours), None):
        raise UserError(f"--scores {taken}: the name of another figure; give it its own")


def read(files: ParallelFiles, systems: Sequence[System], options: EvaluationOptions) -> ReadTest:
    """Read a test set and see that its systems, whose facts are known, can translate it.

    Raises UserError: 65 for files of unequal lines, 2 for systems that do not fit.
    """
    sources, references, parts = files.read()
    if empty := sum(not line.strip() for line in references):
        log.warning("%s: %d references are empty; all words count as wrong", files.name, empty)
    hypotheses: list[list[list[str]]] = [[] for _ in systems]
    columns: dict[int, Mapping[str, Path]] = {}
    for s, system in enumerate(systems):
        if system.file is not None:
            lines = read_parallel(system.file, references, files.described)
            _refuse_records(lines, system.file)
            hypotheses[s] = [lines]
        elif system.facts is not None:
            columns[s] = _columns(system.models[0], system.facts, sources, options)
            for path in columns[s].values():
                read_parallel(path, references, files.described)
    if unread := set(options.columns).difference(*(s.facts.columns for s in systems if s.facts)):
        log.warning("--columns: no model reads %s", ", ".join(sorted(unread)))
    typed = options.target_language
    side = REFERENCE if options.lengths == REFERENCE else "source"
    segmenter, unit = _counted(systems, options, side)
    texts = references if side == REFERENCE else sources
    lengths = None
    if texts is not None:
        lengths = [len(segmenter.encode(t) if segmenter else t.split()) for t in texts]
    test = TranslatedTest(
        references=references,
        hypotheses=hypotheses,
        name=files.name,
        about=files.about,
        language=short_code(typed) if typed else _language(files, systems),
        sources=sources,
        lengths=lengths,
        unit=None if lengths is None else unit,
        side=side,
        trained=[_longest(system, side, segmenter) for system in systems],
        parts=parts,
    )
    return ReadTest(test, columns)


def _refuse_records(lines: Sequence[str], path: Path) -> None:
    """Raise UserError (65) for what nmt-translate writes beside the text of its translations."""
    filled = [line for line in lines if line.strip()]
    for option, form in RECORDS.items():
        if filled and all(map(form.match, filled)):
            raise UserError(
                f"{path}: no plain text, but what nmt-translate {option} writes; leave that out",
                Exit.DATA,
            )


def _score(
    one: ReadTest,
    systems: Sequence[System],
    options: EvaluationOptions,
    given: dict[str, dict[int, list[Floats]]],
) -> tuple[ScoredTest, list[Figure]]:
    """All figures of one test set, those that need its models included."""
    test, labels = one.test, [system.label for system in systems]
    log.info("scoring %s: %d pairs", test.name, len(test.references))
    _warn_of_slow_ter(test, options)
    tokenize = options.tokenize or metrics.DEFAULT_TOKENIZER.get(test.language, "13a")
    if tokenize in ("13a", "intl", "none") and metrics.is_unspaced(test.references):
        log.warning(
            "%s: the references have no spaces between words, and tokenizer %s takes a line for "
            "one word; give --target-language zh, ja or ko, or --tokenize char",
            *(test.name, tokenize),
        )
    if options.perplexity:
        given[metrics.PERPLEXITY] = models.count_likelihoods(one, systems, options)
    if options.attention and options.bounds and test.sources is not None:
        given[metrics.UNATTENDED] = models.count_attention(one, systems, options)
    scored, figures = score_test(test, labels, options, given)
    if not options.lost:
        return scored, figures
    forced = models.translate_with_forced_lengths(one, systems, options)
    counts = [
        [
            lost.loss_counts(test.references, test.lengths or [], longest or 0, *pair)
            for pair in (zip(free, same, strict=True) if same else ())
        ]
        for free, same, longest in zip(test.hypotheses, forced, test.trained, strict=True)
    ]
    causes = lost.causes_of_loss(test.name, labels, counts, options.samples, options.seed)
    if causes:
        scored.metrics.extend(lost.CAUSE_METRICS)
        known = {group.name for group in scored.groups}
        pairs = {cause.group: cause.pairs for cause in causes if cause.group not in known}
        scored.groups.extend(Group(*item) for item in pairs.items())
    return scored, [*figures, *causes]


def _warn_of_slow_ter(test: TranslatedTest, options: EvaluationOptions) -> None:
    """Say that TER of outputs that run on takes long, before it does."""
    if not any(name.startswith("TER") for name in options.metrics or metrics.DEFAULTS):
        return
    outputs = (line for runs in test.hypotheses for run in runs for line in run)
    whole = test.language in metrics.WHOLE_FOR_MOSES  # each character is a word of TER
    if slow := sum(len(line if whole else line.split()) > SLOW_FOR_TER for line in outputs):
        log.warning(
            "TER: %s outputs have more than %d %s, each of which takes sacreBLEU seconds; "
            "--metric BLEU,chrF2 leaves it out",
            *(f"{slow:,}", SLOW_FOR_TER, "characters" if whole else "words"),
        )


def _columns(
    model: SystemModel,
    facts: ModelFacts,
    sources: Sequence[str] | None,
    options: EvaluationOptions,
) -> Mapping[str, Path]:
    """The files of integers that a model reads; UserError where it wants others."""
    data, columns = model.settings.data, dict(options.columns)
    if not columns and data.columns and sources is not None:
        known = packed(Path(data.test_source)) if data.test_source else None
        if known and file_of(known).is_file() and read_text(known) == sources:
            columns = {name: Path(path) for name, path in columns_of_test(model.settings).items()}
    forced = model.settings.decode.length == "forced"  # else as long as the references
    absent = missing(facts.columns - ({LENGTH} if forced else set()), columns)
    if absent:
        raise UserError(
            f"{model.place}: reads the column {', '.join(absent)}, which its config names for its "
            f"own test set only; add --columns {absent[0]}=FILE"
        )
    return {name: path for name, path in columns.items() if name in facts.columns}


def _language(files: ParallelFiles, systems: Sequence[System]) -> str:
    """The target language of the models; UserError where they translate others."""
    pairs = {languages_of(model.settings) for system in systems for model in system.models}
    pairs = {pair for pair in pairs if UNNAMED not in pair}
    if len(pairs) > 1:
        directions = ", ".join("-".join(pair) for pair in sorted(pairs))
        raise UserError(f"{files.name}: its systems translate {directions}; compare them apart")
    return pairs.pop()[1] if pairs else "en"


def _counted(
    systems: Sequence[System], options: EvaluationOptions, side: str
) -> tuple[Segmenter | None, str]:
    """What lengths of a side count: pieces of the model that is named, or the first; or words."""
    if options.lengths and options.lengths != REFERENCE:
        model = Path(options.lengths)
        return facts_at(model).of(side)[0], PIECES.format(model.name)
    for system in systems:
        if system.facts:
            return system.facts.of(side)[0], PIECES.format(system.label)
    return None, WORDS


def _longest(system: System, side: str, counted: Segmenter | None) -> int | None:
    """The longest text of a side in training; None where other pieces are `counted`, or words."""
    if system.facts is None or counted is None:
        return None
    segmenter, longest = system.facts.of(side)
    return longest if segmenter.to_json() == counted.to_json() else None


def _read_scores(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> dict[str, dict[int, list[Floats]]]:
    """The numbers that files have for each line, by metric and system: [lines, 2].

    Raises UserError: 2 for a system that is not there, or has several seeds; 65 for a line that is
    no number, and where there are fewer or more lines than references.
    """
    labels = [system.label for system in systems]
    given: dict[str, dict[int, list[Floats]]] = {}
    for (name, label), path in options.scores.items():
        if label not in labels:
            raise UserError(
                f"--scores {name}={label}: no such system; there are {', '.join(labels)}"
            )
        system = systems[labels.index(label)]
        if len(system.models) > 1:
            raise UserError(
                f"--scores {name}={label}: has {len(system.models)} seeds; name one run"
            )
        lines = read_text(path)
        if len(lines) != len(test.references):
            counts = f"{len(lines)} lines, but the test has {len(test.references)}"
            raise UserError(f"{path}: {counts}; give one number for each", Exit.DATA)
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                value = float(line)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise UserError(
                    f"{path}:{number}: {line[:40]!r} is no number; give one a line", Exit.DATA
                )
            rows.append((value, 1.0))
        given.setdefault(name, {})[labels.index(label)] = [np.array(rows)]
    return given
