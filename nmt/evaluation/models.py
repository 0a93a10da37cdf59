"""The part of an evaluation that needs models: translations and likelihoods."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nmt.config.settings import with_decode
from nmt.decode.engine import LENGTH
from nmt.decode.models import adapt
from nmt.decode.score import GivenTranslation, score_translations
from nmt.errors import RefusedLinesError
from nmt.evaluation.attention import count_unattended, draw_lines
from nmt.evaluation.metrics import Floats
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import TranslatedTest
from nmt.evaluation.scoring import choose_lines
from nmt.evaluation.systems import System, SystemModel
from nmt.evaluation.translations import KeptTranslation, load, translate_all
from nmt.exchange import ctranslate2_engine
from nmt.modeldir import Trained
from nmt.text.lines import read_text

log = logging.getLogger(__name__)


def translate_tests(
    tests: Sequence[TranslatedTest], systems: Sequence[System], options: EvaluationOptions
) -> None:
    """Add the translations that models make to the tests; raises what `translate_all` does."""
    requests = [
        (
            test.hypotheses[s],
            KeptTranslation(
                *(system.label, model, test.name, test.sources or [], test.columns[s]),
                _forced_lengths(system, model, test, s),
            ),
        )
        for s, system in enumerate(systems)
        for model in system.models
        for test in tests
    ]
    translations = translate_all([request for _, request in requests], options)
    for (runs, _), lines in zip(requests, translations, strict=True):
        runs.append(lines)


def _forced_lengths(
    system: System, model: SystemModel, test: TranslatedTest, s: int
) -> Sequence[int]:
    """The lengths of the references, if decode.length=forced and no column has others."""
    if model.settings.decode.length != "forced" or LENGTH in test.columns[s]:
        return ()
    assert system.facts is not None, "a model has facts"
    return [len(system.facts.target_segmenter.encode(line)) for line in test.references]


def translate_with_forced_lengths(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> list[list[list[str]]]:
    """Translations with lengths forced to those of the references: system, run -> lines.

    Systems whose loss cannot be divided into its parts are left out, with a warning.
    """
    lengths = {"length": "forced", "min_length_ratio": 0}
    forced_systems = []
    for s, system in enumerate(systems):
        models = system.models
        if reason := _why_not_divided(system, test, s):
            message = "%s: --lost does not say why %s loses text: %s"
            log.warning(message, test.name, system.label, reason)
            models = []
        models = [m._replace(settings=with_decode(m.settings, lengths)) for m in models]
        forced_systems.append(system._replace(models=models))
    columns = {
        s: {name: path for name, path in files.items() if name != LENGTH}
        for s, files in test.columns.items()
    }
    forced = replace(test, columns=columns, hypotheses=[[] for _ in systems])
    translate_tests([forced], forced_systems, options)
    return forced.hypotheses


def _why_not_divided(system: System, test: TranslatedTest, s: int) -> str:
    """Why the loss of a system cannot be divided into its parts; empty: it can."""
    if system.facts is None:
        return "that needs a model that translates again, and this is a file"
    if any(ctranslate2_engine.is_exported(model.paths[0]) for model in system.models):
        return "CTranslate2 cannot force lengths; name the model that was exported"
    decode = system.models[0].settings.decode
    if decode.split != "lines":
        return f"decode.split={decode.split} does not go with lengths of whole lines"
    longest = test.trained[s]
    if longest is None:
        return "its trained length in these pieces is not known"
    is_beyond = [length > longest for length in test.lengths or ()]
    if all(is_beyond) or not any(is_beyond):
        return f"{'every' if all(is_beyond) else 'no'} {test.side} is longer than any in training"
    encode, most = system.facts.segmenter.encode, system.longest_whole
    if any(len(encode(line)) > most for line in test.sources or ()):
        return f"it divides or cuts some sources, which have more than {most} pieces"
    return ""


def count_likelihoods(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> dict[int, list[Floats]]:
    """Negative log-probabilities of the references, and their pieces: system, run -> [lines, 2].

    As training measures it on the development text; NaN where a side is too long for the model.
    """

    def count(label: str, model: SystemModel, files: Mapping[str, Path]) -> Floats:
        trained = single(model, options)
        texts = test.sources or [], test.references, _columns(trained, files)
        scored = list[GivenTranslation | None]()
        try:
            scored += score_translations(trained, *texts)
        except RefusedLinesError as error:  # after the last line
            log.warning("%s: without perplexity: %s", label, error)
        unknown = (np.nan, np.nan)
        return np.array([unknown if one is None else (-one.log_prob, one.length) for one in scored])

    return {
        s: [count(system.label, model, test.columns[s]) for model in system.models]
        for s, system in enumerate(systems)
        if system.models
    }


def count_attention(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> dict[int, list[Floats]]:
    """Source pieces without attention, and all pieces, of a sample of each bucket: [lines, 2].

    Of the first run of each system, and of single models of this toolkit: ensembles and CTranslate2
    show no attention. Zero in lines that are not in the sample.
    """
    sources = test.sources or []
    chosen = choose_lines(len(sources), test.lengths, options.bounds)
    buckets = [lines.tolist() for group, lines in chosen.items() if group.low is not None]
    sample = sorted(i for lines in buckets for i in draw_lines(lines, sources, options.seed))
    counted = dict[int, list[Floats]]()
    for s, system in enumerate(systems):
        paths = system.models[0].paths if system.models else ()
        if len(paths) != 1 or ctranslate2_engine.is_exported(paths[0]):
            continue
        log.info("observing the attention of %s", system.label)
        trained = single(system.models[0], options)
        columns = _columns(trained, test.columns[s])
        outputs = test.hypotheses[s][0]
        counted[s] = [count_unattended(trained, sources, outputs, sample, columns)]
    return counted


def single(model: SystemModel, options: EvaluationOptions) -> Trained:
    """Load a single model, adapted to its decode settings."""
    (trained,) = load(model.paths, options).models
    return adapt(trained, model.settings.decode)


def _columns(trained: Trained, files: Mapping[str, Path]) -> dict[str, list[str]]:
    reads = trained.model.columns
    return {name: read_text(path) for name, path in files.items() if name in reads}
