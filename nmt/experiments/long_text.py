"""What a model loses on lines longer than any that it was trained on, and what search can do.

Every number is of the user's own lines. The lines beyond the trained length are compared with
those within it, and a sample of them is translated again with other search settings.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt import modeldir
from nmt.compare.attention.statistics import attention_statistics, unattended
from nmt.compare.long_text import LongText, Losses, Remedy
from nmt.compare.report import Share
from nmt.compare.significance import interval, resampled
from nmt.compare.undertranslation import arrived, ngrams, repetition
from nmt.config import with_decode
from nmt.data.corpus import read_text
from nmt.data.segmenter import Segmenter, pieces_of
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_engine
from nmt.experiments.facts import facts_of
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.systems import System, SystemModel
from nmt.experiments.testsets import single_test
from nmt.experiments.translate import KeptTranslation, load, translate_all
from nmt.modeldir import USUAL_LENGTH

SAMPLE = 64  # lines beyond the trained length that are translated in other ways
OBSERVED = 16  # lines of each group whose attention is read, where there are no references
NGRAM = 6  # pieces that no_repeat_ngram is tried with
SHARE = 0.8  # of the usual length of a translation: what min_length_ratio is tried with


def diagnose(
    system: System, source: Path, reference: Path | None, options: EvaluationOptions
) -> LongText:
    """Translate a text, divide its lines at the trained length, and try what search can do.

    Raises UserError: 2 for what is not a single model of this toolkit, or reads columns; 65 for a
    text without words and files that are not parallel; 66 for files that are not there.
    """
    model = _model_of(system)
    test = single_test(source, reference or source)
    sources, references = read_text(source), read_text(reference) if reference else None
    if references is not None:
        test.read()  # says what is not parallel
    if not any(line.strip() for line in sources):
        raise UserError(f"{source}: no line has text; nothing to diagnose", Exit.DATA)
    facts = facts_of(system)
    assert facts is not None
    if facts.columns:
        raise UserError(f"{model.place}: reads columns; --diagnose is for models of text alone")
    pieces = [len(pieces_of(facts.segmenter, line)) for line in sources]
    divided_at = facts.longest or USUAL_LENGTH
    groups = [[i for i, n in enumerate(pieces) if (n > divided_at) is far] for far in (False, True)]
    settings = with_decode(model.settings, options.decode)

    def translated(lines: Sequence[str], changes: Mapping[str, object]) -> list[str]:
        decode = with_decode(settings, changes).decode
        kept = KeptTranslation(system.label, model, test, lines, decode, {}, options.cache)
        return translate_all([kept], options)[0]

    hypotheses = translated(sources, {})
    text = _Text(sources, references, options)
    within, beyond = (text.losses(group, hypotheses) for group in groups)
    if reference is None:
        within, beyond = (
            losses._replace(unattended=text.unattended(model.paths, group, hypotheses))
            for losses, group in zip((within, beyond), groups, strict=True)
        )
    draw = random.Random(options.seed)
    sample = sorted(draw.sample(groups[1], min(SAMPLE, len(groups[1]))))
    source_side, target_side = modeldir.sides(model.paths[0])
    usual = _ratio(source_side.segmenter, target_side.segmenter, sources, hypotheses, groups[0])
    remedies = []
    for name, changes in _remedies(divided_at, usual).items() if sample else ():
        lines = translated([sources[i] for i in sample], changes) if changes else None
        outputs = dict(zip(sample, lines or [hypotheses[i] for i in sample], strict=True))
        overrides = [f"decode.{key}={value}" for key, value in changes.items()]
        remedies.append(Remedy(name, overrides, text.losses(sample, outputs)))
    return LongText(
        model.place, str(source), model.run is not None, facts.longest, divided_at,
        max(pieces), reference is not None, within, beyond, remedies,
    )  # fmt: skip


def _model_of(system: System) -> SystemModel:
    """The one model of a system; UserError (2) where there is none, or several."""
    if len(system.models) != 1 or len(system.models[0].paths) != 1:
        raise UserError(f"{system.label}: --diagnose is of one model; name one run or directory")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.paths[0]):
        raise UserError(f"{model.place}: --diagnose: name the model that was exported")
    return model


def _ratio(
    source: Segmenter,
    target: Segmenter,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    lines: Sequence[int],
) -> float:
    """Pieces of translations per piece of their sources; 1 without lines."""
    read = sum(len(pieces_of(source, sources[i])) for i in lines)
    return sum(len(pieces_of(target, hypotheses[i])) for i in lines) / read if read else 1.0


def _remedies(most: int, usual: float) -> dict[str, dict[str, object]]:
    """Search settings to try, by name; `usual`: pieces of a translation per piece of a source."""
    shortest: dict[str, object] = {"min_length_ratio": round(SHARE * usual, 2)}
    return {
        "as the model searches": {},
        "in parts": {"max_source": most, "too_long": "split"},
        "not too short": shortest,
        "without repetitions": {"no_repeat_ngram": NGRAM},
        "both": {**shortest, "no_repeat_ngram": NGRAM},
    }


class _Text(NamedTuple):
    """A text, its references, and how intervals are drawn."""

    sources: Sequence[str]
    references: Sequence[str] | None
    options: EvaluationOptions

    def losses(self, lines: Sequence[int], hypotheses: Mapping[int, str] | Sequence[str]) -> Losses:
        """What is missing of these lines, by their translations."""
        outputs = [hypotheses[i] for i in lines]
        others = [(self.references or self.sources)[i] for i in lines]
        characters = sum(len("".join(line.split())) for line in others)
        given = sum(len("".join(line.split())) for line in outputs)
        return Losses(
            len(lines),
            self._missing(outputs, others) if self.references is not None else None,
            None,
            repetition(outputs),
            given / characters if characters else None,
        )

    def _missing(self, outputs: Sequence[str], references: Sequence[str]) -> Share | None:
        wanted = [ngrams(line) for line in references]
        counts = np.array(
            [
                (arrived(grams, ngrams(output)), grams.total())
                for grams, output in zip(wanted, outputs, strict=True)
            ]
        )
        if not counts.size or not counts[:, 1].sum():
            return None
        sums = resampled(counts.astype(float), self.options.samples, self.options.seed)
        low, high = interval(1 - sums[:, 0] / np.maximum(sums[:, 1], 1))
        matched, total = counts.sum(0)
        return Share(1 - matched / total, low, high)

    def unattended(
        self, paths: Sequence[Path], lines: Sequence[int], hypotheses: Sequence[str]
    ) -> float | None:
        """The share of source pieces without attention in a sample; None: no lines."""
        filled = [i for i in lines if self.sources[i].strip()]
        draw = random.Random(self.options.seed)
        sample = sorted(draw.sample(filled, min(OBSERVED, len(filled))))
        if not sample:
            return None
        (trained,) = load(paths, self.options).models
        chosen = [self.sources[i] for i in sample], [hypotheses[i] for i in sample]
        return unattended(attention_statistics(trained, *chosen).sentences)
