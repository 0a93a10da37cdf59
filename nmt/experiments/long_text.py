"""What a model loses on lines longer than any that it was trained on, and what search can do.

Every number is of the user's own lines. The lines beyond the trained length are compared with
those within it, and a sample of them is translated again with other search settings.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.compare.arrival import lost, ngrams, pooled_share
from nmt.compare.attention.statistics import attention_statistics, unattended
from nmt.compare.long_text import LongText, Losses, Remedy
from nmt.compare.report import Share
from nmt.compare.undertranslation import repetition
from nmt.config import with_decode
from nmt.data.corpus import read_text
from nmt.data.segmenter import pieces_of
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_engine
from nmt.experiments.models import with_search_settings
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
    system = with_search_settings(system, options.decode)
    (model,), facts = system.models, system.facts
    assert facts is not None
    if facts.columns:
        columns = ", ".join(sorted(facts.columns))
        raise UserError(f"{model.place}: reads {columns}; --diagnose is for models of text alone")
    pieces = [len(pieces_of(facts.segmenter, line)) for line in sources]
    divided_at = facts.longest or USUAL_LENGTH
    groups = [[i for i, n in enumerate(pieces) if (n > divided_at) is far] for far in (False, True)]

    def translated(lines: Sequence[str], changes: Mapping[str, object]) -> list[str]:
        decode = with_decode(model.settings, changes).decode
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
    read = sum(pieces[i] for i in groups[0])
    written = sum(len(pieces_of(facts.target_segmenter, hypotheses[i])) for i in groups[0])
    shortest = min(
        SHARE * written / read if read else SHARE, model.settings.decode.max_length_ratio
    )
    remedies = []
    for name, changes in _remedies(divided_at, shortest).items() if sample else ():
        lines = translated([sources[i] for i in sample], changes) if changes else None
        outputs = dict(zip(sample, lines or [hypotheses[i] for i in sample], strict=True))
        tried = {**options.decode, **changes} if changes else {}
        overrides = [f"decode.{key}={value}" for key, value in tried.items()]
        remedies.append(Remedy(name, overrides, text.losses(sample, outputs)))
    return LongText(
        model.place, str(source), model.run is not None, "relative" in model.settings.encoding,
        facts.longest, divided_at, max(pieces), reference is not None, within, beyond, remedies,
    )  # fmt: skip


def _model_of(system: System) -> SystemModel:
    """The one model of a system; UserError (2) where there is none, or several."""
    if len(system.models) != 1 or len(system.models[0].paths) != 1:
        raise UserError(f"{system.label}: --diagnose is of one model; name one run or directory")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.paths[0]):
        raise UserError(f"{model.place}: --diagnose: name the model that was exported")
    return model


def _remedies(most: int, shortest: float) -> dict[str, dict[str, object]]:
    """Search settings to try, by name; shortest: least pieces of a translation per source piece."""
    not_too_short: dict[str, object] = {"min_length_ratio": round(shortest, 2)}
    return {
        "as the model searches": {},
        "in parts": {"max_source": most, "too_long": "split"},
        "not too short": not_too_short,
        "without repetitions": {"no_repeat_ngram": NGRAM},
        "both": {**not_too_short, "no_repeat_ngram": NGRAM},
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
            self._lost(outputs, others) if self.references is not None else None,
            None,
            repetition(outputs),
            given / characters if characters else None,
        )

    def _lost(self, outputs: Sequence[str], references: Sequence[str]) -> Share | None:
        expected = [ngrams(line) for line in references]
        counts = [
            [lost(grams, [ngrams(output)]), grams.total()]
            for grams, output in zip(expected, outputs, strict=True)
        ]
        return pooled_share(np.array(counts), self.options.samples, self.options.seed)

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
