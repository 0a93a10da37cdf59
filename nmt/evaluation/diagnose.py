"""What a model loses on lines longer than any that it was trained on, and what search can do.

Every number is of the user's own lines. The lines beyond the trained length are compared with
those within it, and a sample of them is translated again with other search settings.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.config.settings import Decode, with_decode
from nmt.decode import split
from nmt.errors import Exit, UserError
from nmt.evaluation.attention import count_unattended, draw_lines
from nmt.evaluation.lost import lost_text
from nmt.evaluation.metrics import ratio, repeats
from nmt.evaluation.models import single
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import Figure
from nmt.evaluation.significance import count_runs, score_group
from nmt.evaluation.systems import System, with_search_settings
from nmt.evaluation.testsets import single_test
from nmt.evaluation.translations import KeptTranslation, translate_all
from nmt.exchange import ctranslate2_engine
from nmt.modeldir import USUAL_LENGTH
from nmt.text.lines import read_text

SAMPLE = 64  # lines beyond the trained length that are translated in other ways
NGRAM = 6  # pieces that no_repeat_ngram is tried with
BEAM, COVERAGE = 4, 0.2  # of coverage_penalty, which needs a beam
SHARE = 0.8  # of the usual length of a translation: what min_length_ratio is tried with

Changes = dict[str, object]  # of keys under decode


class Losses(NamedTuple):
    """What is lost of some lines; None: nothing to tell it by."""

    lines: int
    lost: Figure | None  # share of the character 6-grams of the references
    unattended: float | None  # source pieces that got almost no attention; without references
    repeated: float | None  # 4-grams that stood earlier in their line
    length: float | None  # characters, over those of the references, or of the sources


class Remedy(NamedTuple):
    """A sample of the long lines, translated in another way."""

    name: str
    overrides: list[str]  # of nmt-translate; none: as the model searches
    losses: Losses


class Diagnosis(NamedTuple):
    """What one model loses on one text."""

    model: str  # as the user named it
    source: str
    is_run: bool  # whether its corpus is known
    encoding: str  # encoding=NAME, as an override has it; of several, NAME+NAME
    trained: int | None  # pieces of the longest source in training; None: unknown
    divided_at: int  # pieces; lines above are the long ones
    longest: int  # pieces of the longest line
    with_references: bool
    within: Losses
    beyond: Losses
    remedies: list[Remedy]  # of a sample of the long lines; the first one: as the model searches


def diagnose(
    system: System, source: Path, reference: Path | None, options: EvaluationOptions
) -> Diagnosis:
    """Translate a text, divide its lines at the trained length, and try what search can do.

    Raises UserError: 2 for what is not a single model of this toolkit, or reads columns; 65 for a
    text without words and files that are not parallel; 66 for files that are not there.
    """
    _check_single(system)
    sources, references = _read_texts(source, reference)
    system = with_search_settings(system, options.decode)
    (model,), facts = system.models, system.facts
    assert facts is not None
    if facts.columns:
        columns = ", ".join(sorted(facts.columns))
        raise UserError(f"{model.place}: reads {columns}; a diagnosis is of models of text alone")
    pieces = [len(facts.segmenter.encode(line)) for line in sources]
    divided_at = facts.longest or USUAL_LENGTH
    short = [i for i, n in enumerate(pieces) if n <= divided_at]
    long = [i for i, n in enumerate(pieces) if n > divided_at]

    def translate(lines: Sequence[str], changes: Changes) -> list[str]:
        changed = model._replace(settings=with_decode(model.settings, changes))
        request = KeptTranslation(system.label, changed, source.name, lines, {})
        return translate_all([request], options)[0]

    def measure(lines: Sequence[int], outputs: Sequence[str]) -> Losses:
        texts = [(references or sources)[i] for i in lines]
        return _measure(texts, outputs, references is not None, options)

    def unattended(lines: Sequence[int]) -> float | None:
        sample = draw_lines(lines, sources, options.seed)
        if not sample:
            return None
        counts = count_unattended(single(model, options), sources, hypotheses, sample)
        return ratio(np.sum([*counts.values()], axis=0))

    hypotheses = translate(sources, {})
    within, beyond = (measure(lines, [hypotheses[i] for i in lines]) for lines in (short, long))
    if references is None:
        trained = single(model, options)
        shares = []
        for lines in (short, long):
            sample = draw_lines(lines, sources, options.seed)
            counts = list(count_unattended(trained, sources, hypotheses, sample).values())
            shares.append(ratio(np.sum(counts, axis=0)) if counts else None)
        within, beyond = (
            within._replace(unattended=shares[0]),
            beyond._replace(unattended=shares[1]),
        )
    sample = draw_lines(long, sources, options.seed, SAMPLE)
    count = sum(pieces[i] for i in short)
    written = sum(len(facts.target_segmenter.encode(hypotheses[i])) for i in short)
    decode = model.settings.decode
    shortest = min(SHARE * (written / count if count else 1.0), decode.max_length_ratio)
    remedies = []
    for name, changes in _list_remedies(divided_at, shortest, decode).items() if sample else ():
        outputs, overrides = [hypotheses[i] for i in sample], list[str]()
        if changes:
            outputs = translate([sources[i] for i in sample], changes)
            settings = {**options.decode, **changes}
            overrides = [f"decode.{k}={'null' if v is None else v}" for k, v in settings.items()]
        remedies.append(Remedy(name, overrides, measure(sample, outputs)))
    return Diagnosis(
        model.place, str(source), model.run is not None,
        f"encoding={'+'.join(model.settings.encoding)}",
        facts.longest, divided_at, max(pieces), references is not None, within, beyond, remedies,
    )  # fmt: skip


def _check_single(system: System) -> None:
    """Raise UserError (2) for a system that is not one model of this toolkit."""
    if len(system.models) != 1 or len(system.models[0].paths) != 1:
        raise UserError(f"{system.label}: a diagnosis is of one model; name one run or directory")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.paths[0]):
        raise UserError(f"{model.place}: written for CTranslate2; name the model that was exported")


def _read_texts(source: Path, reference: Path | None) -> tuple[list[str], list[str] | None]:
    sources, references = read_text(source), None
    if reference is not None:
        _, references, _ = single_test([source], [reference]).read()  # says what is not parallel
    if not any(line.strip() for line in sources):
        raise UserError(f"{source}: no line has text; nothing to diagnose", Exit.DATA)
    return sources, references


def _measure(
    texts: Sequence[str], outputs: Sequence[str], are_references: bool, options: EvaluationOptions
) -> Losses:
    """The losses of some lines, by their references, or else their sources."""
    lost = None
    if are_references and texts:
        metric = lost_text(texts)
        about = {"test": "", "group": "", "system": "", "pairs": len(texts)}
        counts = count_runs([metric], [[outputs]])
        bootstrap = options.samples, options.seed
        rows = score_group([metric], counts, np.arange(len(texts)), [about], *bootstrap)
        lost = next(iter(rows), None)
    repeated = repeats(outputs).sum(0)
    of_outputs, of_texts = map(_count_characters, (outputs, texts))
    return Losses(
        len(texts),
        lost,
        None,
        ratio(repeated) if repeated[1] else None,
        of_outputs / of_texts if of_texts else None,
    )


def _list_remedies(most: int, shortest: float, decode: Decode) -> dict[str, Changes]:
    """Search settings to try, by name; shortest: least pieces of a translation per source piece."""
    not_too_short: Changes = {"min_length_ratio": round(shortest, 2)}
    remedies: dict[str, Changes] = {"as the model searches": {}}
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


def _count_characters(lines: Sequence[str]) -> int:
    return sum(len("".join(line.split())) for line in lines)
