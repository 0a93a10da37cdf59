"""What a model loses on lines longer than any that it was trained on, and what search can do.

Every number is of the user's own lines. The lines beyond the trained length are compared with
those within it, and a sample of them is translated again with other search settings.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt.compare.arrival import lost_share
from nmt.compare.attention.observe import sampled
from nmt.compare.attention.statistics import attention_statistics, unattended
from nmt.compare.long_text import LongText, Losses, Remedy
from nmt.compare.undertranslation import repetition
from nmt.config.settings import Decode, with_decode
from nmt.data.corpus import read_text
from nmt.data.segmenter import pieces_of
from nmt.decode import parts
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_engine
from nmt.experiments.models import single, with_search_settings
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.systems import System, SystemModel
from nmt.experiments.testsets import single_test
from nmt.experiments.translate import KeptTranslation, translate_all
from nmt.modelfiles import USUAL_LENGTH

SAMPLE = 64  # lines beyond the trained length that are translated in other ways
NGRAM = 6  # pieces that no_repeat_ngram is tried with
BEAM, COVERAGE = 4, 0.2  # of coverage_penalty, which needs a beam
SHARE = 0.8  # of the usual length of a translation: what min_length_ratio is tried with


def diagnose(
    system: System, source: Path, reference: Path | None, options: EvaluationOptions
) -> LongText:
    """Translate a text, divide its lines at the trained length, and try what search can do.

    Raises UserError: 2 for what is not a single model of this toolkit, or reads columns; 65 for a
    text without words and files that are not parallel; 66 for files that are not there.
    """
    _check_single(system)
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
    short = [i for i, n in enumerate(pieces) if n <= divided_at]
    long = [i for i, n in enumerate(pieces) if n > divided_at]

    def translated(lines: Sequence[str], changes: Mapping[str, object]) -> list[str]:
        decode = with_decode(model.settings, changes).decode
        kept = KeptTranslation(system.label, model, test, lines, decode, {}, options.cache)
        return translate_all([kept], options)[0]

    hypotheses = translated(sources, {})

    def losses(lines: Sequence[int], outputs: Sequence[str]) -> Losses:
        chosen = [(references or sources)[i] for i in lines]
        of_outputs, of_chosen = map(_characters, (outputs, chosen))
        share = lost_share(chosen, outputs, options.samples, options.seed) if references else None
        ratio = of_outputs / of_chosen if of_chosen else None
        return Losses(len(lines), share, None, repetition(outputs), ratio)

    within, beyond = (losses(lines, [hypotheses[i] for i in lines]) for lines in (short, long))
    if references is None:
        within, beyond = (
            group._replace(unattended=_unattended(model, lines, sources, hypotheses, options))
            for group, lines in ((within, short), (beyond, long))
        )
    sample = sampled(long, sources, options.seed, SAMPLE)
    read = sum(pieces[i] for i in short)
    written = sum(len(pieces_of(facts.target_segmenter, hypotheses[i])) for i in short)
    usual = written / read if read else 1.0
    shortest = min(SHARE * usual, model.settings.decode.max_length_ratio)
    remedies, decode = [], model.settings.decode
    for name, changes in _remedies(divided_at, shortest, decode).items() if sample else ():
        outputs = [hypotheses[i] for i in sample]
        if changes:
            outputs = translated([sources[i] for i in sample], changes)
            changes = {**options.decode, **changes}
        overrides = [f"decode.{k}={'null' if v is None else v}" for k, v in changes.items()]
        remedies.append(Remedy(name, overrides, losses(sample, outputs)))
    return LongText(
        model.place, str(source), model.run is not None,
        f"encoding={'+'.join(model.settings.encoding)}",
        facts.longest, divided_at, max(pieces), reference is not None, within, beyond, remedies,
    )  # fmt: skip


def _check_single(system: System) -> None:
    """Raise UserError (2) for a system that is not one model of this toolkit."""
    if len(system.models) != 1 or len(system.models[0].paths) != 1:
        raise UserError(f"{system.label}: --diagnose is of one model; name one run or directory")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.paths[0]):
        raise UserError(f"{model.place}: --diagnose: name the model that was exported")


def _remedies(most: int, shortest: float, decode: Decode) -> dict[str, dict[str, object]]:
    """Search settings to try, by name; shortest: least pieces of a translation per source piece."""
    not_too_short: dict[str, object] = {"min_length_ratio": round(shortest, 2)}
    beam: dict[str, object] = {} if decode.beam_size >= BEAM else {"beam_size": BEAM}
    covering = {**beam, "coverage_penalty": COVERAGE} if decode.method == "beam" else None
    return {
        "as the model searches": {},
        **({"by sentences": {"split": "sentences"}} if parts.is_sentencex_installed() else {}),
        "in parts": {"max_source": most, "too_long": "split"},
        "not too short": not_too_short,
        "without repetitions": {"no_repeat_ngram": NGRAM},
        "both": {**not_too_short, "no_repeat_ngram": NGRAM},
        **({} if covering is None else {"covering the source": covering}),
    }


def _characters(lines: Sequence[str]) -> int:
    return sum(len("".join(line.split())) for line in lines)


def _unattended(
    model: SystemModel,
    lines: Sequence[int],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    options: EvaluationOptions,
) -> float | None:
    """The share of source pieces without attention in a sample of some lines; None: no lines."""
    sample = sampled(lines, sources, options.seed)
    if not sample:
        return None
    chosen = [sources[i] for i in sample], [hypotheses[i] for i in sample]
    return unattended(attention_statistics(single(model, options), *chosen).sentences)
