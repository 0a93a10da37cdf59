"""A child that went on from its parent for longer text, beside it: what was won, what was lost."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import BEAM, SAMPLING, Decode, Files
from nmt.errors import UserError
from nmt.experiments import outputs
from nmt.experiments.evaluate import BOUNDS, EvaluationOptions, evaluate
from nmt.experiments.systems import systems_at
from nmt.experiments.testsets import ParallelFiles, joined_pairs, of_corpus
from nmt.overrides.compose import Experiment

if TYPE_CHECKING:
    from nmt.compare.report import Report

log = logging.getLogger(__name__)
DIRECTORY = "lengthened"  # in the directory of the run: joined lines, and what was measured
CHILD = "child"  # the label of the run in these reports
METRICS = ("BLEU-moses", "TER-moses")
ANY_SEARCH = ("method", "max_length_ratio", "max_length_offset", "mbr")


def reports(experiment: Experiment) -> Iterator[tuple[str, "Report"]]:
    """Translate the test set with both, as it is and joined in pairs, and score it by length.

    Both search as the settings of the child say, whatever the parent's were.
    The lengths are divided at half the longest source that the parent was trained on, at it, and
    at twice as much; at BOUNDS where that is unknown, which is said. Each report comes with what
    its text is, and is also written to a JSON file in the directory of the run. Yields
    nothing, with a word, where the corpus names no test set.
    Raises what `evaluate` does, and at the end UserError (74) for a file that cannot be written.
    """
    assert experiment.parent is not None, "experiment=lengthen has one"
    data, run = experiment.settings.data, experiment.run
    if isinstance(data, Files) and not (data.test_source and data.test_target):
        log.info("no test set to compare on: name data.test_source and data.test_target")
        return
    source, reference = map(Path, of_corpus(experiment.settings))
    single = ParallelFiles("test", "as it is", source, reference)
    languages = (data.source_language, data.target_language)
    (joined,) = joined_pairs([single], languages, run / DIRECTORY)
    options = EvaluationOptions(
        bounds=_bounds(experiment.parent),
        metrics=METRICS,
        decode=_search(experiment.settings.decode),
        perplexity=True,
        device=experiment.settings.trainer.device,
    )
    systems = systems_at({"parent": str(experiment.parent), CHILD: str(run)})
    unwritten: UserError | None = None
    for test in (single, joined):
        report = evaluate(systems, [test], options)
        yield test.about, report
        text = outputs.of_text(partial(outputs.as_json, report.to_json()))
        try:
            outputs.write_all([(run / DIRECTORY / f"report-{test.name}.json", text)])
        except UserError as error:
            unwritten = error
    if unwritten is not None:
        raise unwritten


def _search(decode: Decode) -> dict[str, str | int | float]:
    """What two models share in searching; other keys say how a model reads pieces and positions."""
    keys = [*ANY_SEARCH, *(BEAM if decode.method == "beam" else SAMPLING)]
    return {key: getattr(decode, key) for key in keys}


def _bounds(parent: Path) -> Sequence[int]:
    """Where source lengths are divided, in pieces, for what the parent was trained on."""
    from nmt import modeldir

    trained = modeldir.facts(parent)["longest_source"]
    if trained is None:
        log.info(
            "%s: the longest source in its training is unknown; lengths are divided at %s "
            "(nmt-import --trained-length N tells it)",
            parent, ", ".join(map(str, BOUNDS)),
        )  # fmt: skip
        return BOUNDS
    return sorted({max(1, trained // 2), trained, 2 * trained})
