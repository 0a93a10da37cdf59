"""The texts of an evaluation in memory, and what its report says of systems and tests."""

import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from nmt import __version__, modelfiles
from nmt.compare.attention import SAMPLE
from nmt.compare.report import (
    REFERENCE,
    SOURCE,
    ComparedLine,
    ComparedSystem,
    PaperTable,
    Report,
    ScoredTest,
    TrainedRun,
    trained_run,
)
from nmt.compare.scores import DEFAULTS, of_language
from nmt.compare.scoring import JoinedParts, TranslatedTest
from nmt.config.settings import freeze
from nmt.data import joined
from nmt.data.columns import missing
from nmt.data.corpus import file_of, packed, read_parallel, read_text
from nmt.data.languages import languages_of, short_code
from nmt.data.segmenter import Segmenter, pieces_of
from nmt.decode.sources import LENGTH
from nmt.errors import UserError
from nmt.exchange.settings import UNNAMED
from nmt.experiments.columns import columns_of_test
from nmt.experiments.facts import facts_at, search_notes, training_notes
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.systems import ModelFacts, System, SystemModel
from nmt.experiments.testsets import ParallelFiles
from nmt.storage import manifest
from nmt.training.metrics import METRICS, read_metrics
from nmt.training.run import progress

log = logging.getLogger(__name__)

PIECES = "subword pieces of {}"
WORDS = "words of the source (no model to count pieces)"
OF_REFERENCE = "words of the reference (no model to count pieces)"
PACKAGES = ("sacrebleu", "sacremoses", "numpy")  # on which scores depend
TOO_LONG = {
    "split": "translated in parts",
    "refuse": "left empty",
    "truncate": "cut to that",
}  # what decode.too_long does with a source
BOTH = "both"  # sides, each with lengths of its own


class ReadTest(NamedTuple):
    """A test set in memory."""

    files: ParallelFiles
    columns: dict[int, Mapping[str, Path]]  # by system: the files of those that it reads
    test: TranslatedTest  # with the translations that are read from files


def sides_of(options: EvaluationOptions) -> list[str]:
    """Whose lengths make the buckets of a test; where both, the test is scored by each."""
    sides = {REFERENCE: [REFERENCE], BOTH: [SOURCE, REFERENCE]}
    return sides.get(options.lengths or "", [SOURCE])


def read(
    files: ParallelFiles,
    systems: Sequence[System],
    tables: Sequence[PaperTable],
    options: EvaluationOptions,
) -> list[ReadTest]:
    """Read a test set and see that its systems, whose facts are known, can translate it.

    Once for each side whose lengths make its buckets.

    Raises UserError: 65 for files of unequal lines, 2 for systems that do not fit.
    """
    of_tables = [table for table in tables if table.test == files.name]
    sources, references = files.read()
    if empty := sum(not line.strip() for line in references):
        log.warning("%s: %d references are empty; all words count as wrong", files.reference, empty)
    hypotheses: list[list[list[str]]] = [[] for _ in systems]
    columns: dict[int, Mapping[str, Path]] = {}
    for s, system in enumerate(systems):
        if system.file is not None:
            hypotheses[s] = [read_parallel(system.file, references, files.reference)]
        elif system.facts is not None:
            columns[s] = _columns(system.models[0], system.facts, sources, options)
            for path in columns[s].values():
                read_parallel(path, references, files.reference)
    if unread := set(options.columns).difference(*(s.facts.columns for s in systems if s.facts)):
        log.warning("--columns: no model reads %s", ", ".join(sorted(unread)))
    typed = options.target_language
    language = short_code(typed) if typed else _language(files, systems)
    test = TranslatedTest(
        references=references,
        hypotheses=hypotheses,
        language=language,
        name=files.name,
        about=files.about,
        sources=sources,
        parts=_parts(files),
        metrics=_metrics(of_tables, options, language),
        tokenize=options.tokenize,
    )
    return [
        ReadTest(files, columns, _measured(test, side, systems, options))
        for side in sides_of(options)
    ]


def _measured(
    test: TranslatedTest, side: str, systems: Sequence[System], options: EvaluationOptions
) -> TranslatedTest:
    """The test with the lengths of one side, and what of them its systems were trained on."""
    texts = test.references if side == REFERENCE else test.sources
    unit, segmenter = _counted(systems, options, side)
    apart = options.lengths == BOTH and side == REFERENCE  # from the same test by source length
    test = test._replace(
        name=f"{test.name}-by-reference" if apart else test.name,
        side=side,
        longest_trained=[_longest(system, side, segmenter) for system in systems],
    )
    if texts is None:
        return test
    lengths = [len(pieces_of(segmenter, line) if segmenter else line.split()) for line in texts]
    return test._replace(lengths=lengths, unit=unit)


def _metrics(
    tables: Sequence[PaperTable], options: EvaluationOptions, language: str
) -> list[str] | None:
    """The metrics of a test: those that are wanted, and behind them those of its tables."""
    of_tables = [metric for table in tables for metric in table.metrics]
    if not of_tables:
        return None if options.metrics is None else list(options.metrics)
    wanted = options.metrics or of_language(DEFAULTS, language)
    return list(dict.fromkeys([*wanted, *of_tables]))


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


def _parts(files: ParallelFiles) -> JoinedParts | None:
    """The sentences of joined lines; None where the record next to them is of other texts."""
    try:
        return None if files.source is None else joined.parts_of(files.source, files.reference)
    except UserError as error:
        log.warning("dropped second halves are not counted: %s", error)
        return None


def _counted(
    systems: Sequence[System], options: EvaluationOptions, side: str
) -> tuple[str, Segmenter | None]:
    """What lengths of a side count: pieces of the model that is named, or the first; or words."""
    if options.lengths and options.lengths not in (REFERENCE, BOTH):
        model = Path(options.lengths)
        return PIECES.format(model.name), facts_at(model).of(side)[0]
    for system in systems:
        if system.facts:
            return PIECES.format(system.label), system.facts.of(side)[0]
    return OF_REFERENCE if side == REFERENCE else WORDS, None


def _longest(system: System, side: str, counted: Segmenter | None) -> int | None:
    """The longest text of a side in training; None where other pieces are `counted`, or words."""
    if system.facts is None or counted is None:
        return None
    segmenter, longest = system.facts.of(side)
    return longest if segmenter.to_json() == counted.to_json() else None


def with_lines(scored: ScoredTest, test: TranslatedTest) -> ScoredTest:
    """The scored test with all its lines and their translations."""
    sources: Sequence[str | None] = test.sources or [None] * len(test.references)
    lines = [
        ComparedLine(source, reference, [[run[i] for run in runs] for runs in test.hypotheses])
        for i, (source, reference) in enumerate(zip(sources, test.references, strict=True))
    ]
    return replace(scored, lines=lines)


def compared(systems: Sequence[System], tests: Sequence[TranslatedTest]) -> list[ComparedSystem]:
    """The systems as a report has them; warns where a trained length cannot be marked."""
    compared_systems = []
    for s, system in enumerate(systems):
        facts = system.facts
        limits = {test.side: test.longest_trained[s] for test in tests}  # all of a side agree
        for side, longest in limits.items():
            if facts and longest is None:
                _warn_of_missing_marks(system.label, facts, side)
        runs = [_trained(model, model.run) for model in system.models if model.run]
        limit = limits.get(SOURCE, facts and facts.longest)
        parameters = facts and facts.parameters
        of_encodings = facts and facts.encoding_parameters
        compared_systems.append(ComparedSystem(system.label, limit, parameters, of_encodings, runs))
    return compared_systems


def _warn_of_missing_marks(label: str, model: ModelFacts, side: str) -> None:
    """Say why the trained length of a model is not marked: in other pieces, or not known."""
    if model.of(side)[1] is not None:
        reason = "segments otherwise than lengths are counted; its trained length is not marked"
        log.warning("%s: %s", label, reason)
    elif side == REFERENCE:
        log.warning("%s: its longest target in training is not known, and not marked", label)


def _trained(model: SystemModel, run: Path) -> TrainedRun:
    """The training of a run up to its newest checkpoint, or to the one that the model is.

    Its steps are counted by the checkpoints: metrics.jsonl is read as far as it can be.
    """
    lines, remark = read_metrics(run / METRICS)
    if remark:
        log.warning("%s: %s; left out of the report", run / METRICS, remark)
    is_checkpoint = model.fingerprint is None
    step = modelfiles.facts(model.paths[0])["step"] if is_checkpoint else progress(run)[0]
    lines = [line for line in lines if line["step"] <= step]
    return trained_run(str(run), model.settings.seed, step, lines)


def provenance_of(systems: Sequence[System], tests: Sequence[ParallelFiles]) -> dict[str, Any]:
    """Versions of all that computes scores, the files that were read, and systems."""
    versions = {"nmt": __version__, "python": platform.python_version()}
    files = {
        f"{test.name} {side}": {"path": str(path), "sha256": manifest.sha256_of(file_of(path))}
        for test in tests
        for side, path in ((SOURCE, test.source), (REFERENCE, test.reference))
        if path
    }
    described = {
        system.label: {
            "places": system.places,
            **({"settings": freeze(system.models[0].settings)} if system.models else {}),
        }
        for system in systems
    }
    return {
        "versions": versions | {name: version(name) for name in PACKAGES},
        "files": files,
        "by_sentence": [test.name for test in tests if test.by_sentence],
        "systems": described,
    }


def _notes_of_long_sources(read: ReadTest, systems: Sequence[System]) -> list[str]:
    """What became of the sources that models do not translate whole; see `LineReader`."""
    test, labels_of = read.test, dict[str, list[str]]()
    for s, system in enumerate(systems):
        if system.facts is None or system.models[0].settings.decode.split != "lines":
            continue
        counted = test.side == SOURCE and test.longest_trained[s] is not None  # in its own pieces
        lengths = test.lengths if counted else None
        if lengths is None:
            segmenter = system.facts.segmenter
            lengths = [len(pieces_of(segmenter, line)) for line in test.sources or ()]
        most, way = system.longest_whole, system.models[0].settings.decode.too_long
        if way == "split" and missing(system.facts.columns, ()):
            way = "refuse"  # columns cannot be divided
        if count := sum(length > most for length in lengths):
            text = f"Sources of {test.name} with more than {most:,} pieces: {count:,}"
            labels_of.setdefault(f"{text}, {TOO_LONG[way]}", []).append(system.label)
    return [f"{text} ({', '.join(labels)})." for text, labels in labels_of.items()]


def notes(
    report: Report,
    systems: Sequence[System],
    tests: Sequence[ReadTest],
    options: EvaluationOptions,
) -> list[str]:
    """How the numbers came about, as far as these functions know."""
    notes = [*options.notes, *training_notes(systems), *search_notes(systems)]
    tests = [read for read in tests if read.test.name == read.files.name]  # not by both lengths
    notes += [note for read in tests for note in _notes_of_long_sources(read, systems)]
    if by_sentence := [read.files.name for read in tests if read.files.by_sentence]:
        notes.append(
            f"Each joined line of {', '.join(by_sentence)} is read as the pieces of its sentences."
        )
    if any(table.published for table in report.tables):
        notes.append(
            "The paper's BLEU (cased) and TER (by TERCom) are of tokenised text, as BLEU-moses and "
            "TER-moses here; it does not say which tokeniser, nor whether TER heeds case, which "
            "ours does not."
        )
    if report.profiles:
        notes.append(
            "Attention (distances, coverage, source never attended) is of the first run of each "
            f"system, on up to {SAMPLE} sentences of each length group, drawn by seed "
            f"{options.seed}, the same for all systems."
        )
    return list(dict.fromkeys(notes))
