"""A child trained further on longer text, compared with its parent by source length."""

import logging
from collections.abc import Sequence
from pathlib import Path

from nmt import modeldir
from nmt.config.compose import Experiment
from nmt.config.data import tags_of
from nmt.config.settings import BEAM, RESTRICTIONS, SAMPLING
from nmt.errors import UserError
from nmt.evaluation import text
from nmt.evaluation.metrics import names_of_metrics
from nmt.evaluation.options import BOUNDS, EvaluationOptions
from nmt.evaluation.report import Report
from nmt.evaluation.run import evaluate
from nmt.evaluation.systems import read_named_systems
from nmt.evaluation.testsets import corpus_test, unnamed_files
from nmt.system import outputs
from nmt.text.languages import languages_of
from nmt.text.unigram import language_codes

log = logging.getLogger(__name__)
DIRECTORY = "lengthened"  # in the directory of the run: joined lines, and what was measured
CHILD = "child"  # the label of the run in these reports
REPORT = "report.json"
SLOW = "TER"  # takes hours where outputs run on
ANY_SEARCH = (
    *("method", "max_length_ratio", "max_length_offset", "mbr", "unknown", "precision"),
    *(*RESTRICTIONS, *SAMPLING),
)


def parent_of(experiment: Experiment) -> Path | None:
    """The model that a run of experiment=lengthen continues from; None for other runs."""
    parent = experiment.recipe.get("parent")
    return None if parent is None else Path(str(parent))


def check(experiment: Experiment) -> None:
    """Raise UserError, before anything is trained, for a test set that cannot be used after it.

    That is 65 or 66 for files that cannot be read.
    """
    if "parent" not in experiment.recipe:
        return
    parent, start = experiment.recipe["parent"], experiment.settings.trainer.init_from
    if parent is None or parent != start:
        raise UserError(f"parent={parent}: the run starts from {start}; name the model by parent=")
    if not unnamed_files(experiment.settings):
        corpus_test(experiment.settings).read()


def report(experiment: Experiment) -> Report | None:
    """Score parent and child by length, on the test set as it is and with lines joined in pairs.

    Both search as the settings of the child say, whatever the parent's were. The lengths are
    divided at half the longest source that the parent was trained on, at it, and at twice as much;
    at BOUNDS, with a warning, where that is unknown. None, with a message, without a test set or
    if the parent is gone.
    """
    parent = parent_of(experiment)
    assert parent is not None, "experiment=lengthen has one"
    settings, run = experiment.settings, experiment.run
    if not parent.exists():
        log.info("%s: is gone, so that nothing is compared with it", parent)
        return None
    if absent := unnamed_files(settings):
        log.info(
            "no test set: the model is not compared with its parent; to do that, repeat the "
            "command with %s",
            " ".join(f"{key}=FILE" for key in absent),
        )
        return None
    tags = {*language_codes(modeldir.read_sides(run)[0].vocabulary), *tags_of(settings.data)}
    test = corpus_test(settings)
    joined = test._replace(
        name="test-joined", about="The same lines, each two joined.", join=2, tags=tags
    )
    # keys of search that two models share; other keys say how a model reads its input
    shared_keys = [*ANY_SEARCH, *(BEAM if settings.decode.method == "beam" else ())]
    language = languages_of(settings)[1]
    options = EvaluationOptions(
        bounds=_bounds(parent),
        metrics=[m for m in names_of_metrics(language, default=True) if m != SLOW],
        decode={key: getattr(settings.decode, key) for key in shared_keys},
        perplexity=True,
        device=settings.trainer.device,
        title=f"{run} and its parent, {parent}, by source length",
    )
    systems = read_named_systems([("parent", str(parent)), (CHILD, str(run))])
    return evaluate(systems, [test, joined], options)


def write(report: Report, run: Path) -> None:
    """Keep a report in the directory of its run; UserError (74) where it cannot be written."""
    path = run / DIRECTORY / REPORT
    outputs.write_all([(path, text.writer_of(path, report))])


def _bounds(parent: Path) -> Sequence[int]:
    """The limits of the buckets, in pieces, by the longest source in the parent's training."""
    trained = modeldir.read_facts(parent)["longest_source"]
    if trained is None:
        log.info(
            "%s: the longest source in its training is unknown; lengths are divided at %s "
            "(nmt-import --trained-length N tells it)",
            parent, ", ".join(map(str, BOUNDS)),
        )  # fmt: skip
        return BOUNDS
    return sorted({max(1, trained // 2), trained, 2 * trained})
