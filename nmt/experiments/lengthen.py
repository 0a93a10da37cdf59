"""A child that went on from its parent for longer text, beside it: what was won, what was lost."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import BEAM, SAMPLING, Decode, Files
from nmt.experiments import outputs
from nmt.experiments.evaluate import EvaluationOptions, NamedSystem, evaluate
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
    at twice as much. Each report comes with what its text is, and is also written to a JSON file in
    the directory of the run. Yields nothing, with a word, where the corpus names no test set.
    Raises what `evaluate` does.
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
    trained = _longest(experiment.parent)
    options = EvaluationOptions(
        bounds=sorted({max(1, trained // 2), trained, 2 * trained}),
        metrics=METRICS,
        decode=_search(experiment.settings.decode),
        perplexity=True,
        device=experiment.settings.trainer.device,
    )
    systems = [NamedSystem("parent", experiment.parent), NamedSystem(CHILD, run)]
    for test in (single, joined):
        report = evaluate(systems, test.reference, test.source, options)
        place = run / DIRECTORY / f"report-{test.name}.json"
        outputs.write(place, partial(outputs.as_json, report.to_json()))
        yield test.about, report


def _search(decode: Decode) -> dict[str, str | int | float]:
    """What two models share in searching; other keys say how a model reads pieces and positions."""
    keys = [*ANY_SEARCH, *(BEAM if decode.method == "beam" else SAMPLING)]
    return {key: getattr(decode, key) for key in keys}


def _longest(parent: Path) -> int:
    """Pieces of the longest source that a model was trained on."""
    from nmt import modeldir
    from nmt.manifest import Sealed

    return modeldir.reading(
        parent, lambda checkpoint: int(Sealed(checkpoint).json("facts.json")["longest_source"])
    )
