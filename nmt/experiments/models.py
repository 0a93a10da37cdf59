"""The models of an evaluation: translating, scoring references, observing attention."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nmt.compare import attention
from nmt.compare.report import AttentionProfile, Report
from nmt.compare.scoring import TranslatedTest
from nmt.config.settings import with_decode
from nmt.data.corpus import read_text
from nmt.data.segmenter import pieces_of
from nmt.decode import forced
from nmt.decode.forced import GivenTranslation
from nmt.decode.notes import Note
from nmt.decode.sources import LENGTH
from nmt.decode.torch_engine import adapted
from nmt.exchange import ctranslate2_engine
from nmt.experiments.facts import facts_of
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.reading import ReadTest
from nmt.experiments.systems import System, SystemModel
from nmt.experiments.translate import KeptTranslation, load, translate_all
from nmt.modeldir import Trained

log = logging.getLogger(__name__)


def with_search_settings(system: System, changes: Mapping[str, object]) -> System:
    """The system with its facts, and other values under decode; UserError if one cannot be."""
    models = [m._replace(settings=with_decode(m.settings, changes)) for m in system.models]
    system = system._replace(models=models)
    return system._replace(facts=facts_of(system))


def translated(
    tests: Sequence[ReadTest], systems: Sequence[System], options: EvaluationOptions
) -> list[ReadTest]:
    """The tests with all translations; raises what `translate_all` does."""
    complete = []
    for read, by_system in zip(tests, _translations(tests, systems, options), strict=True):
        both = zip(read.test.hypotheses, by_system, strict=True)
        test = read.test._replace(hypotheses=[of_file + of_models for of_file, of_models in both])
        complete.append(read._replace(test=test))
    return complete


def _translations(
    tests: Sequence[ReadTest], systems: Sequence[System], options: EvaluationOptions
) -> list[list[list[list[str]]]]:
    """The translations that models make: test, system, run -> lines; no run of a file."""
    requests = {
        (t, s, run): KeptTranslation(
            *(system.label, model, test.files, test.test.sources or [], model.settings.decode),
            columns=test.columns[s],
            cache=options.cache,
            lengths=_forced_lengths(system, model, test, s),
        )
        for s, system in enumerate(systems)
        for run, model in enumerate(system.models)
        for t, test in enumerate(tests)
    }
    lines = translate_all(list(requests.values()), options)
    translations: list[list[list[list[str]]]] = [[[] for _ in systems] for _ in tests]
    for (t, s, _), translation in zip(requests, lines, strict=True):
        translations[t][s].append(translation)
    return translations


def _forced_lengths(system: System, model: SystemModel, test: ReadTest, s: int) -> Sequence[int]:
    """With decode.length=forced and no column that says them: the lengths of the references."""
    if model.settings.decode.length != "forced" or LENGTH in test.columns[s]:
        return ()
    assert system.facts is not None, "a model has facts"
    return [len(pieces_of(system.facts.target_segmenter, line)) for line in test.test.references]


def with_forced_lengths(
    read_test: ReadTest, systems: Sequence[System], options: EvaluationOptions
) -> list[list[list[str]]]:
    """Translations with lengths forced to those of the references: system, run -> lines.

    No run of a system whose loss cannot be divided into its parts, which is said.
    """
    lengths = {"length": "forced", "min_length_ratio": 0}
    forced_systems = []
    for s, system in enumerate(systems):
        models = system.models
        if reason := _why_not_divided(system, read_test.test, s):
            message = "%s: --lost does not say why %s loses text: %s"
            log.warning(message, read_test.test.name, system.label, reason)
            models = []
        models = [m._replace(settings=with_decode(m.settings, lengths)) for m in models]
        forced_systems.append(system._replace(models=models))
    columns: dict[int, Mapping[str, Path]] = {
        s: {name: path for name, path in files.items() if name != LENGTH}
        for s, files in read_test.columns.items()
    }
    (forced_lines,) = _translations([read_test._replace(columns=columns)], forced_systems, options)
    return forced_lines


def _why_not_divided(system: System, test: TranslatedTest, s: int) -> str:
    """Why what a system loses cannot be divided into its parts; empty: it can."""
    if system.facts is None:
        return "translations in a file have no other lengths"
    if any(ctranslate2_engine.is_exported(model.paths[0]) for model in system.models):
        return "CTranslate2 cannot force lengths; name the model that was exported"
    decode = system.models[0].settings.decode
    if decode.split != "lines":
        return f"decode.split={decode.split} does not go with lengths of whole lines"
    longest = test.longest_trained[s]
    if longest is None:
        return "its trained length in these pieces is not known"
    is_beyond = [length > longest for length in test.lengths or ()]
    if all(is_beyond) or not any(is_beyond):
        return f"{'every' if all(is_beyond) else 'no'} {test.side} is longer than any in training"
    held, segmenter = system.facts.source_limit, system.facts.segmenter
    most = system.longest_whole
    if any(len(pieces_of(segmenter, line)) > most for line in test.sources or ()):
        what = "all that its encoding holds" if most == held else "decode.max_source"
        return f"some sources have more than {most} pieces, {what}"
    return ""


def scored_references(
    read_test: ReadTest, systems: Sequence[System], options: EvaluationOptions
) -> list[list[list[GivenTranslation | None]]]:
    """How likely each model finds the references: system, run -> lines; no run of a file."""
    return [
        [
            _scored_references(system.label, model, read_test, read_test.columns[s], options)
            for model in system.models
        ]
        for s, system in enumerate(systems)
    ]


def _scored_references(
    label: str,
    model: SystemModel,
    read_test: ReadTest,
    columns: Mapping[str, Path],
    options: EvaluationOptions,
) -> list[GivenTranslation | None]:
    """None where a side is too long for the model."""
    trained = single(model, options)
    lines, parallel = read_test.test.sources or [], _columns(trained, columns)
    too_long = Note()
    scored = forced.score(trained, lines, read_test.test.references, parallel, too_long=too_long)
    references = list(scored)
    if too_long.count:
        log.warning(
            "%s: no perplexity where pairs are longer than the encoding holds: %s",
            label,
            too_long,
        )
    return references


def single(model: SystemModel, options: EvaluationOptions) -> Trained:
    """A model, which is no ensemble, as its settings have it translate."""
    (trained,) = load(model.paths, options).models
    return adapted(trained, model.settings.decode)


def _columns(trained: Trained, files: Mapping[str, Path]) -> dict[str, list[str]]:
    """The columns that a model reads."""
    reads = trained.model.columns
    return {name: read_text(path) for name, path in files.items() if name in reads}


def with_attention(
    report: Report,
    systems: Sequence[System],
    read_tests: Sequence[ReadTest],
    options: EvaluationOptions,
) -> Report:
    """The report with attention statistics of each system's first model.

    Of single models of this toolkit: ensembles and CTranslate2 show none.
    """
    tests, profiles = list(report.tests), list[AttentionProfile]()
    for s, system in enumerate(systems):
        paths = system.models[0].paths if system.models else ()
        if len(paths) != 1 or ctranslate2_engine.is_exported(paths[0]):
            continue
        log.info("observing the attention of %s", system.label)
        trained = single(system.models[0], options)
        for t, read in enumerate(read_tests):
            columns = _columns(trained, read.columns[s])
            tests[t], profile = attention.observe(
                trained, tests[t], read.test, s, columns, options.seed
            )
            profiles += profile
    return replace(report, tests=tests, profiles=profiles)
