"""nmt-compare as a function: every encoding at one budget, translated, scored and ranked."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from nmt.compare.ranking import MissingSystem, Ranking
from nmt.experiments.facts import shared_settings
from nmt.experiments.outputs import sources
from nmt.experiments.plan import PlannedRun, fingerprints, prepare_corpora, without
from nmt.experiments.report import ReportOptions, report
from nmt.experiments.run import train_all
from nmt.experiments.systems import SeededSystem
from nmt.experiments.testsets import refuse_unnamed, shared
from nmt.experiments.translate import KeptTranslation, translate_all

log = logging.getLogger(__name__)

TEST = "test"  # name of the one test set


def compare(
    runs: Sequence[PlannedRun],
    left_out: Sequence[MissingSystem],
    metric: str,
    options: ReportOptions,
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
    _, failed = translate_all([KeptTranslation(run, test) for run in trained], options.jobs)
    missing += [reason for _, reason in failed]
    translated = without(trained, missing)
    if not translated:
        return None, missing
    systems = [SeededSystem(run.name, [run], None) for run in translated]
    settings = translated[0].settings
    notes = shared_settings(settings, f"seed {settings.seed}")
    made = report("", command, notes, systems, [test], [], options)
    speed = f"tokens/s: the median that training reported, up to {options.jobs} processes at once."
    files = sources({"reference": test.reference, "source": test.source})
    made = replace(made, notes=[*made.notes, speed], about={**made.about, **files})
    return Ranking(made, metric, [*missing, *left_out]), missing
