"""What a model loses on lines longer than any that it was trained on, and what search can do.

The lines beyond the trained length are compared with those within it, and a sample of them is
translated again with other search settings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.config.settings import Decode, with_decode
from nmt.decode import split
from nmt.errors import Exit, UserError
from nmt.evaluation.attention import count_unattended, draw_lines
from nmt.evaluation.lost import lost_text
from nmt.evaluation.metrics import MODEL_METRICS, REPETITION, UNATTENDED, Floats, Lines, Metric
from nmt.evaluation.models import single
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import Figure
from nmt.evaluation.significance import count_runs, score_group
from nmt.evaluation.systems import System, SystemModel, with_search_settings
from nmt.evaluation.testsets import single_test
from nmt.evaluation.translations import KeptTranslation, translate_all
from nmt.exchange import ctranslate2_engine
from nmt.modeldir import USUAL_LENGTH
from nmt.text.lines import read_text

SAMPLE = 64  # lines beyond the trained length that are translated in other ways
NGRAM = 6  # pieces that no_repeat_ngram is tried with
BEAM, COVERAGE = 4, 0.2  # of coverage_penalty, which needs a beam
SHARE = 0.8  # of the usual length of a translation: what min_length_ratio is tried with
LENGTH = "length"  # characters of translations over those of the references, or sources

Changes = dict[str, Any]  # of keys under decode


class Losses(NamedTuple):
    """How much of some lines is lost in translation."""

    lines: int
    figures: Mapping[str, Figure] = {}  # by metric; none of no lines


class Remedy(NamedTuple):
    """A sample of the long lines, translated with other search settings."""

    name: str
    overrides: list[str]  # of nmt-translate; none: as the model searches
    losses: Losses


class Diagnosis(NamedTuple):
    """What one model loses on one text."""

    model: SystemModel
    source: Path
    reference: Path | None
    trained: int | None  # pieces of the longest source in training; None: unknown
    divided_at: int  # pieces; lines above are the long ones
    longest: int  # pieces of the longest line
    within: Losses
    beyond: Losses
    remedies: list[Remedy]  # of a sample of the long lines; the first one: as the model searches


def metrics_of(sources: Lines, references: Lines | None) -> list[Metric]:
    """The metrics of losses, by the references, or else by the sources."""
    lost = [] if references is None else [lost_text(references)]
    return [*lost, REPETITION, length_over(references or sources)]


def measure(
    metrics: Sequence[Metric],
    counts: Mapping[str, Floats],
    lines: Sequence[int],
    options: EvaluationOptions,
) -> Losses:
    """The losses of some lines, from the counts of all lines."""
    if not lines:
        return Losses(0)
    about = {"test": "", "group": "", "system": "", "pairs": len(lines)}
    bootstrap = options.samples, options.seed
    rows = score_group(metrics, [[counts]], np.array(lines), [about], *bootstrap)
    return Losses(len(lines), {row.metric: row for row in rows})


def length_over(texts: Lines) -> Metric:
    """The characters of translations over those of texts, without white space."""

    def count(lines: Lines) -> Floats:
        sizes = [[len("".join(line.split())) for line in side] for side in (lines, texts)]
        return np.array(sizes, np.float64).T

    return Metric(LENGTH, "", "ratio", counts=count)


def diagnose(
    system: System, source: Path, reference: Path | None, options: EvaluationOptions
) -> Diagnosis:
    """Translate a text, divide its lines at the trained length, and try what search can do.

    Raises UserError for what is not a single model of this toolkit that reads text alone (2), and
    for files without words (65), not parallel (65) or missing (66).
    """
    _check_single(system)
    sources, references = _read_texts(source, reference)
    system = with_search_settings(system, options.decode)
    (model,), facts = system.models, system.facts
    assert facts is not None, "a model has facts"
    if facts.columns:
        columns = ", ".join(sorted(facts.columns))
        raise UserError(f"{model.typed}: reads {columns}; a diagnosis is of models of text alone")
    pieces = [len(facts.segmenter.encode(line)) for line in sources]
    divided_at = facts.longest or USUAL_LENGTH
    short = [i for i, n in enumerate(pieces) if n <= divided_at]
    long = [i for i, n in enumerate(pieces) if n > divided_at]
    request = KeptTranslation(system.label, model, source.name, sources, {})
    (outputs,) = translate_all([request], options)
    metrics = metrics_of(sources, references)
    ((counts,),) = count_runs(metrics, [[outputs]])
    if references is None:
        trained = single(model, options)
        samples = [draw_lines(lines, sources, options.seed) for lines in (short, long)]
        attention = [count_unattended(trained, sources, outputs, sample) for sample in samples]
        metrics.append(MODEL_METRICS[UNATTENDED])
        counts[UNATTENDED] = attention[0] + attention[1]
    read = sum(pieces[i] for i in short)
    written = sum(len(facts.target_segmenter.encode(outputs[i])) for i in short)
    usual = written / read if read else 1.0
    remedies = _list_remedies(divided_at, usual, model.settings.decode)
    within, beyond = (measure(metrics, counts, lines, options) for lines in (short, long))
    sample = draw_lines(long, sources, options.seed, SAMPLE)
    as_searched = Remedy("as the model searches", [], measure(metrics, counts, sample, options))
    request = replace(request, lines=[sources[i] for i in sample])
    if references is not None:
        references = [references[i] for i in sample]
    tried = _try_remedies(remedies, request, references, options)
    return Diagnosis(
        *(model, source, reference, facts.longest, divided_at, max(pieces), within, beyond),
        remedies=[as_searched, *tried] if sample else [],
    )


def _check_single(system: System) -> None:
    if system.file is not None:
        raise UserError(f"{system.file}: is a file; name the directory of a run or model")
    if len(system.models[0].paths) != 1:
        raise UserError(f"{system.label}: a diagnosis is of one model; name one run or directory")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.paths[0]):
        raise UserError(f"{model.typed}: written for CTranslate2; name the model that was exported")


def _read_texts(source: Path, reference: Path | None) -> tuple[list[str], list[str] | None]:
    sources, references = read_text(source), None
    if reference is not None:
        _, references, _ = single_test([source], [reference]).read()  # refuses what is not parallel
    if not any(line.strip() for line in sources):
        raise UserError(f"{source}: no line has text; nothing to diagnose", Exit.DATA)
    return sources, references


def _list_remedies(most: int, usual: float, decode: Decode) -> dict[str, Changes]:
    """Search settings to try, by name; `usual`: target pieces per source piece of short lines."""
    shortest = min(SHARE * usual, decode.max_length_ratio)
    not_too_short: Changes = {"min_length_ratio": round(shortest, 2)}
    remedies = dict[str, Changes]()
    if split.is_sentencex_installed():
        remedies["by sentences"] = {"split": "sentences"}
    remedies["in parts"] = {"max_source": most, "too_long": "split"}
    remedies["not too short"] = not_too_short
    remedies["without repetitions"] = {"no_repeat_ngram": NGRAM}
    remedies["both"] = {**not_too_short, "no_repeat_ngram": NGRAM}
    if decode.method == "beam":
        beam: Changes = {} if decode.beam_size >= BEAM else {"beam_size": BEAM}
        remedies["covering the source"] = {**beam, "coverage_penalty": COVERAGE}
    return remedies


def _try_remedies(
    remedies: Mapping[str, Changes],
    request: KeptTranslation,
    references: Lines | None,
    options: EvaluationOptions,
) -> Iterator[Remedy]:
    metrics, lines = metrics_of(request.lines, references), range(len(request.lines))
    for name, changes in remedies.items():
        settings = with_decode(request.model.settings, changes)
        model = request.model._replace(settings=settings)
        outputs = translate_all([replace(request, model=model)], options)
        ((counts,),) = count_runs(metrics, [outputs])
        typed = {**options.decode, **changes}
        overrides = [f"decode.{k}={'null' if v is None else v}" for k, v in typed.items()]
        yield Remedy(name, overrides, measure(metrics, counts, lines, options))
