"""Systems, which are models or files of translations, scored on one test set by source length."""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.compare import buckets
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.experiments.columns import with_columns

if TYPE_CHECKING:
    from nmt.compare.likelihood import Likelihood
    from nmt.compare.report import Report
    from nmt.compare.scoring import JoinedParts
    from nmt.decode.translator import Translator
    from nmt.experiments.engines import LoadedModels

log = logging.getLogger(__name__)

BOUNDS = (25, 50, 75, 100)  # last lengths of the paper's buckets
SEED = 12345  # of the bootstrap
WORDS = "words (no model to count pieces)"


class NamedSystem(NamedTuple):
    """A model, an ensemble or a file of translations, under the name that tables show."""

    label: str
    path: Path
    others: tuple[Path, ...] = ()  # models that translate together with the first

    @property
    def is_model(self) -> bool:
        """A directory is a model, anything else a file of translations."""
        return self.path.is_dir()

    @property
    def place(self) -> str:
        """Where it is, as it may be typed."""
        return ",".join(map(str, (self.path, *self.others)))

    @classmethod
    def at(cls, label: str, place: str) -> "NamedSystem":
        """That of a path, or of the directories PATH,PATH,..., which are an ensemble."""
        several = [Path(path) for path in place.split(",")]
        if Path(place).exists() or not all(path.is_dir() for path in several):
            return cls(label, Path(place))
        return cls(label, several[0], tuple(several[1:]))


class EvaluationOptions(NamedTuple):
    """What is scored, and how; what is None or empty takes what the models say."""

    bounds: Sequence[int] = BOUNDS  # last length of each bucket
    metrics: Sequence[str] | None = None  # the first one is drawn; None: the usual ones
    columns: Mapping[str, Path] = {}  # integers beside the source, by name
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences
    lengths: str | None = None  # the model that counts source pieces; None: the first system's
    target_language: str | None = None  # for tokenisers; None: the model's, or en
    tokenize: str | None = None  # of BLEU; None: 13a, or the language's own
    samples: int = 1000  # of the bootstrap
    seed: int = SEED  # of the bootstrap
    decode: Mapping[str, Any] = {}  # key -> value, where models search otherwise than as trained
    device: str = "auto"
    threads: int | None = None  # of CPUs, in all; None: as many as the process may use
    workers: int | None = None  # processes that translate; None: as many as pay for the text
    perplexity: bool = False  # of the references, too, by each model
    keep: Path | None = None  # directory that gets the models' translations as LABEL.txt
    quiet: bool = False  # no progress

    def kept(self, systems: "Sequence[NamedSystem]") -> dict[str, Path]:
        """The files that get the translations of models, by their labels."""
        labels = [system.label for system in systems if system.is_model]
        return {} if self.keep is None else {n: self.keep / f"{n}.txt" for n in labels}


USUAL = EvaluationOptions()


class SourceLengths(NamedTuple):
    """Source lengths, and the segmenter that counted them (None: words)."""

    values: list[int] | None
    unit: str | None
    segmenter: dict[str, Any] | None


class EvaluationTexts(NamedTuple):
    """What was read, line by line."""

    references: list[str]
    sources: list[str] | None
    hypotheses: dict[str, list[str]]  # by label; those of models are added
    columns: dict[str, list[str]]  # by name; integers beside the sources
    likelihoods: dict[str, "list[Likelihood | None]"]  # of the references, by label of a model


def system_of(argument: str) -> NamedSystem:
    """Split [LABEL=]PATH[,PATH ...]; what exists as it stands needs no label."""
    label, equals, place = argument.partition("=")
    if not equals or NamedSystem.at("", argument).path.exists():
        equals, place = "", argument
        system = NamedSystem.at("", argument)
        label = "+".join(map(_name, (system.path, *system.others)))
    if (
        not label
        or (equals and not place)
        or re.search(r"[/\\\x00-\x1f]", label)
        or label[0] == "."
    ):
        raise UserError(f"{argument}: expected LABEL=PATH, the label fit for a file name")
    return NamedSystem.at(label, place)


def _name(path: Path) -> str:
    """What a system is called that is given no label."""
    resolved = path.resolve()
    if resolved.parent.name == "checkpoints":
        return f"{resolved.parent.parent.name}@{resolved.name}"
    return resolved.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem


def check(systems: Sequence[NamedSystem], source: Path | None, options: EvaluationOptions) -> None:
    """Raise UserError for what does not fit together; reads nothing."""
    if not systems:
        raise UserError("no system: give models or files of translations", Exit.USAGE)
    buckets.check(options.bounds, "bounds=")
    labels = [system.label for system in systems]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise UserError(f"{twice}: two systems of this name; give LABEL=PATH", Exit.USAGE)
    models = [system for system in systems if system.is_model]
    if models and source is None:
        raise UserError(f"{models[0].path}: a model needs a text to translate; add --source SRC")
    if options.decode and not models:
        key, value = next(iter(options.decode.items()))
        raise UserError(f"decode.{key}={value}: none of the systems is a model; leave it out")
    if options.lengths and source is None:
        raise UserError(f"--lengths {options.lengths}: no text to count in; add --source SRC")
    if options.perplexity and not models:
        raise UserError("--perplexity: none of the systems is a model; leave it out")
    if options.perplexity and (several := next((s for s in models if s.others), None)):
        raise UserError(f"{several.place}: --perplexity: of single models only; leave it out")
    if options.by_sentence and not (models or options.lengths):
        raise UserError("--by-sentence: no model reads the text; give one, or --lengths MODEL")


def evaluate(
    systems: Sequence[NamedSystem],
    reference: Path,
    source: Path | None = None,
    options: EvaluationOptions = USUAL,
) -> "Report":
    """Translate with the models, score all systems, test each against the first.

    Raises UserError: 2 for what does not fit together, 65 for files of unequal lines, 66 for what
    is not there.
    """
    check(systems, source, options)
    texts = _read(systems, reference, source, options)
    started = time.monotonic()
    longest, lengths, language, decodes = _translated(systems, texts, options)
    from nmt.compare.likelihood import with_perplexities
    from nmt.compare.report import ComparedLine, ComparedSystem, Report
    from nmt.compare.scoring import Bootstrap, TranslatedTest, score  # sacrebleu takes a second
    from nmt.compare.undertranslation import with_signs

    log.info("scoring %d pairs of %d systems", len(texts.references), len(systems))
    test = TranslatedTest(
        references=texts.references,
        hypotheses=[[texts.hypotheses[system.label]] for system in systems],
        language=language,
        sources=texts.sources,
        lengths=lengths.values,
        unit=lengths.unit,
        longest_trained=longest,
        metrics=None if options.metrics is None else list(options.metrics),
        tokenize=options.tokenize,
        parts=None if source is None else _parts(source, reference),
    )
    scored = score(test, Bootstrap(list(options.bounds), options.samples, options.seed))
    if test.parts is not None:
        scored = with_signs(scored, test, jobs=1)
    if texts.likelihoods:
        found = [texts.likelihoods.get(system.label) for system in systems]
        scored = with_perplexities(scored, test.lengths or [], found)
    sources: Sequence[str | None] = texts.sources or [None] * len(texts.references)
    translated = zip(*(texts.hypotheses[system.label] for system in systems), strict=True)
    rows = zip(sources, texts.references, translated, strict=True)
    scored = replace(scored, lines=[ComparedLine(s, r, list(h)) for s, r, h in rows])
    report = Report(
        systems=[ComparedSystem(s.label, n) for s, n in zip(systems, longest, strict=True)],
        tests=[scored],
        samples=options.samples,
        seed=options.seed,
        about={
            **outputs.sources({"reference": reference, "source": source}),
            "target_language": language,
            "by_sentence": options.by_sentence,
            "systems": [
                {"label": s.label, "path": s.place, "decode": decodes.get(s.label)} for s in systems
            ],
        },
    )
    log.info("done in %.0f s", time.monotonic() - started)
    return report


def translations(
    report: "Report", kept: Mapping[str, Path]
) -> Iterator[tuple[Path, outputs.Writer]]:
    """The files that get the translations of these systems, by label, of the one test set."""
    for place, system in enumerate(report.systems):
        if path := kept.get(system.label):
            lines = [f"{line.hypotheses[place]}\n" for line in report.tests[0].lines]
            yield path, outputs.of_text(partial("".join, lines))


def _parts(source: Path, reference: Path) -> "JoinedParts | None":
    """The sentences of joined lines; None where the record beside them is none of these texts."""
    try:
        return joined.parts_of(source, reference)
    except UserError as error:
        log.warning("dropped second halves are not counted: %s", error)
        return None


def _read(
    systems: Sequence[NamedSystem],
    reference: Path,
    source: Path | None,
    options: EvaluationOptions,
) -> EvaluationTexts:
    """Read all files; UserError unless each has as many lines as the references, and some."""
    references = read_text(reference)
    if not references:
        raise UserError(f"{reference}: the file is empty; give references", Exit.DATA)

    def parallel(path: Path) -> list[str]:
        lines = read_text(path)
        if len(lines) != len(references):
            raise UserError(
                f"{path}: has {len(lines)} lines, but {reference} has {len(references)}; "
                "line N of both must belong together",
                Exit.DATA,
            )
        return lines

    sources: list[str] | None = parallel(source) if source else None
    if source and options.by_sentence:
        sources = list(joined.by_sentence(source))
    hypotheses = {s.label: parallel(s.path) for s in systems if not s.is_model}
    if empty := sum(not line.strip() for line in references):
        log.warning("%s: %d references are empty; all words count as wrong", reference, empty)
    columns = {name: parallel(path) for name, path in options.columns.items()}
    return EvaluationTexts(references, sources, hypotheses, columns, {})


def _translated(
    systems: Sequence[NamedSystem], texts: EvaluationTexts, options: EvaluationOptions
) -> tuple[list[int | None], SourceLengths, str, dict[str, Any]]:
    """Translate with the models; longest sources in training, source lengths, language, search."""
    from nmt.experiments.engines import with_decode  # torch takes seconds; files do without

    longest: list[int | None] = []
    lengths, language = SourceLengths(None, None, None), options.target_language
    decodes: dict[str, Any] = {}
    unread = set(texts.columns)
    if texts.sources is not None:
        first = next((str(system.path) for system in systems if system.is_model), None)
        lengths = _lengths(options.lengths or first, texts.sources)
    for system in systems:
        if not system.is_model:
            longest.append(None)
            continue
        loaded = _load([system.path, *system.others], options.device, options)
        language = language or loaded.sides.settings.data.target_language
        decode = with_decode(loaded.sides.settings, options.decode).decode
        decodes[system.label] = vars(decode)
        if options.perplexity and not loaded.models:
            raise UserError(
                f"{system.path}: --perplexity: CTranslate2 scores otherwise; name the model that "
                "was exported, or leave it out"
            )
        translator = loaded.translator(decode)
        longest.append(_longest(system, translator, lengths))
        texts.hypotheses[system.label] = _translate(system, translator, texts, options)
        if options.perplexity:
            texts.likelihoods[system.label] = _likelihoods(system, loaded, texts)
        unread -= translator.engine.columns
    if unread:
        log.warning("--columns: no model reads %s", ", ".join(sorted(unread)))
    return longest, lengths, language or "en", decodes


def _likelihoods(
    system: NamedSystem, loaded: "LoadedModels", texts: EvaluationTexts
) -> "list[Likelihood | None]":
    """How likely a model finds each reference; None where a side is too long for it."""
    (trained,) = loaded.models
    from nmt.compare.likelihood import Likelihood
    from nmt.decode import forced
    from nmt.decode.notes import Note

    sources = texts.sources or []
    given = {name: texts.columns[name] for name in trained.model.columns & set(texts.columns)}
    lines, columns = with_columns(trained.model.columns, trained.settings, sources, given)
    too_long = Note()
    found = [
        each and Likelihood(each.log_prob, each.length)
        for each in forced.stream(trained, lines, texts.references, columns, too_long=too_long)
    ]
    if too_long.count:
        log.warning(
            "%s: no perplexity where pairs are longer than the encoding holds: %s",
            system.label,
            too_long,
        )
    return found


def _load(paths: Sequence[Path], device: str, options: EvaluationOptions = USUAL) -> "LoadedModels":
    from nmt import device as devices
    from nmt.experiments import engines

    devices.set_threads(options.threads)
    place = str(devices.pick(device))
    return engines.load(paths, place, options.threads, workers=options.workers)


def _lengths(counter: str | None, sources: list[str]) -> SourceLengths:
    """Count source pieces as a model does, or words where there is no model."""
    if counter is None:
        return SourceLengths([len(line.split()) for line in sources], WORDS, None)
    from nmt.data.seams import pieces_of

    segmenter = _load([Path(counter)], "cpu").sides.source.segmenter
    values = [len(pieces_of(segmenter, line)) for line in sources]
    unit = f"subword pieces of {system_of(counter).label}"
    return SourceLengths(values, unit, segmenter.to_json())


def _longest(system: NamedSystem, translator: "Translator", lengths: SourceLengths) -> int | None:
    """Longest source in a model's training, if its pieces are those that were counted."""
    if translator.source.segmenter.to_json() == lengths.segmenter:
        return translator.longest_trained
    log.warning(
        "%s: segments otherwise than lengths are counted; its trained length is not marked",
        system.label,
    )
    return None


def _translate(
    system: NamedSystem,
    translator: "Translator",
    texts: EvaluationTexts,
    options: EvaluationOptions,
) -> list[str]:
    """The translations of one model, which are kept if that is wanted."""
    from tqdm import tqdm

    from nmt.memory import keep_memory

    keep_memory()
    sources, reader = texts.sources or [], translator.reader
    reads = reader.reads.columns
    given = {name: texts.columns[name] for name in reads & set(texts.columns)}
    lines, columns = with_columns(reads, reader.settings, sources, given)
    tqdm.monitor_interval = 0  # no thread beside those that work: see decode.workers.may_fork
    with closing(translator.translate(lines, 1, columns, read_ahead=True)) as translated:
        bar = tqdm(
            translated,
            desc=system.label,
            total=len(sources),
            unit=" lines",
            disable=True if options.quiet else None,  # None: unless stderr is a terminal
        )
        translated_lines = [best[0].text for best in bar]
    text = outputs.of_text(lambda: "".join(f"{line}\n" for line in translated_lines))
    try:
        outputs.write_all([(path, text) for path in options.kept([system]).values()])
    except UserError as error:  # a full disk; whoever shows the report writes them again
        log.warning("%s", error)
    return translated_lines
