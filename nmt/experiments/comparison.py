"""nmt-compare as a function: every encoding at one budget, translated, scored and ranked."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.compare.ranking import EXACT, MissingSystem, Ranking
from nmt.compare.report import ComparedSystem, Report, trained_run
from nmt.compare.scoring import BLEU, Bootstrap, TranslatedTest, score
from nmt.config import Settings, freeze
from nmt.errors import Exit, UserError
from nmt.experiments.facts import metrics_of, parameters, search_of, shared_settings
from nmt.experiments.outputs import sources
from nmt.experiments.plan import PlannedRun, fingerprints, outcome_of, prepare_corpora, without
from nmt.experiments.run import train_all
from nmt.experiments.testsets import ParallelFiles, refuse_unnamed, shared
from nmt.experiments.translate import KeptTranslation, translate_all

if TYPE_CHECKING:
    from nmt.data.prepare import Prepared

log = logging.getLogger(__name__)

SEED = 12345  # of the bootstrap, as in nmt-evaluate
SOURCE, REFERENCE = "source", "reference"  # whose lengths the buckets hold
PIECES = "subword pieces of the source"
TEST = "test"  # name of the one test set


class RankingOptions(NamedTuple):
    """How systems are ranked."""

    bounds: list[int]  # last length of each bucket
    metric: str
    lengths: str  # SOURCE or REFERENCE
    samples: int  # of the bootstrap
    jobs: int  # processes at once


def compare(
    runs: Sequence[PlannedRun],
    left_out: Sequence[MissingSystem],
    options: RankingOptions,
    command: str,
) -> tuple[Ranking | None, list[MissingSystem]]:
    """Train what is not finished, translate the test set with each, score; and what failed.

    A run that fails does not stop the others; without any there is no ranking. `left_out` are
    named in it, too. Raises UserError before anything is trained for a corpus without a whole
    test set, runs whose test sets differ, or a finished run on another corpus.
    """
    refuse_unnamed(runs)
    corpora = prepare_corpora(runs)
    test = shared(runs, corpora, TEST)
    log.info(
        "%d encodings, %d at once; models and logs: %s",
        *(len(runs), min(options.jobs, len(runs)), runs[0].directory.parent),
    )
    missing = train_all(runs, fingerprints(corpora), options.jobs)
    trained = without(runs, missing)
    lines, failed = translate_all([KeptTranslation(run, test) for run in trained], options.jobs)
    missing += [reason for _, reason in failed]
    translated = without(trained, missing)
    if not translated:
        return None, missing
    log.info("scoring")
    hypotheses = [[lines[run.directory, TEST]] for run in translated]
    report = _report(translated, test, corpora, hypotheses, options)
    ranking = Ranking(replace(report, command=command), options.metric, [*missing, *left_out])
    return ranking, missing


def _report(
    runs: Sequence[PlannedRun],
    test: ParallelFiles,
    corpora: Mapping[str, "Prepared"],
    hypotheses: list[list[list[str]]],
    options: RankingOptions,
) -> Report:
    """Score all translations and put beside them what is known of the models."""
    texts, references = test.read()
    settings, segmenter = runs[0].settings, corpora[runs[0].name].source.segmenter
    longest: list[int | None] = [None for _ in runs]
    if options.lengths == SOURCE:
        lengths, unit = [len(segmenter.encode(line)) for line in texts], PIECES
        longest = [_longest(corpora[run.name], segmenter.to_json()) for run in runs]
    else:
        lengths, unit = [len(line.split()) for line in references], "words of the reference"
    translated = TranslatedTest(
        references=references,
        hypotheses=hypotheses,
        language=settings.data.target_language,
        sources=texts,
        lengths=lengths,
        unit=unit,
        longest_trained=longest,
        metrics=list(dict.fromkeys([options.metric, BLEU, EXACT])),
    )
    return Report(
        systems=[
            _compared(run, corpora[run.name], limit)
            for run, limit in zip(runs, longest, strict=True)
        ],
        tests=[score(translated, Bootstrap(options.bounds, options.samples, SEED))],
        samples=options.samples,
        seed=SEED,
        date=date.today().isoformat(),
        notes=caption(settings, options.jobs),
        about={
            **sources({"reference": test.reference, "source": test.source}),
            "settings": {run.name: freeze(run.settings) for run in runs},
        },
    )


def _longest(corpus: "Prepared", counted: dict[str, Any]) -> int | None:
    """The longest source in training, if it was counted in the same pieces as the test's."""
    same = corpus.source.segmenter.to_json() == counted
    return int(corpus.facts["longest_source"]) if same else None


def _compared(run: PlannedRun, corpus: "Prepared", longest: int | None) -> ComparedSystem:
    """What is known of a run beside its scores; `longest`: longest source in its training."""
    outcome = outcome_of(run, corpus.facts["fingerprint"])
    if outcome is None:
        raise UserError(f"{run.directory}: has changed meanwhile; try again", Exit.DATA)
    sizes = len(corpus.source.vocabulary), len(corpus.target.vocabulary)
    of_encodings, of_model = parameters(run.settings, sizes)
    trained = trained_run(str(run.directory), run.settings.seed, metrics_of(run.directory))
    trained = replace(trained, step=outcome.step, dev_perplexity=outcome.perplexity)
    return ComparedSystem(run.name, longest, of_model, of_encodings, [trained])


def caption(settings: Settings, jobs: int) -> list[str]:
    """What all models have in common, from the settings of one."""
    return [
        *shared_settings(settings, f"seed {settings.seed}"),
        f"Translation: {search_of(settings)}.",
        f"tokens/s: the median that training reported, up to {jobs} processes at once.",
    ]
