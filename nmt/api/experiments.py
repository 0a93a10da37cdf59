"""The Python API, experiments: compose, prepare, train, evaluate, and list encodings."""

from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import NamedTuple

from nmt import parent
from nmt.api import arguments
from nmt.config import catalog
from nmt.config.compose import Experiment as Experiment
from nmt.config.settings import Settings
from nmt.corpus.prepare import Prepared as Prepared
from nmt.evaluation import testsets
from nmt.evaluation.options import USUAL
from nmt.evaluation.options import EvaluationOptions as EvaluationOptions
from nmt.evaluation.report import Report as Report
from nmt.evaluation.run import evaluate as evaluate_systems
from nmt.evaluation.systems import systems_at
from nmt.exchange.exporting import refuse_target
from nmt.training import corpus
from nmt.training import run as training
from nmt.training.run import Outcome as Outcome


class EncodingFacts(NamedTuple):
    """An encoding in a list of them."""

    name: str  # encoding=NAME
    family: str  # as "distances, as vectors"
    summary: str  # one line


def evaluate(
    systems: Mapping[str, str | Path],
    reference: str | Path,
    source: str | Path | None = None,
    options: EvaluationOptions = USUAL,
) -> Report:
    """Score systems by source length, with intervals, and test each against the first.

    `systems` are model directories, which translate the file `source`, or files of translations, by
    the labels that tables show; "runs/a,runs/b" is an ensemble. `reference` is the file of the
    right translations; line N of all files belongs together. Translations are kept, and no text is
    translated twice. `nmt.evaluation.text.render` makes of the report what nmt-evaluate prints, and
    `report.figures` are rows of plain numbers, as for a pandas.DataFrame.
    Raises UserError: 2 for what does not fit together, 65 for files of unequal lines, 66 for what
    is not there.

    >>> report = nmt.evaluate({"baseline": "runs/a", "mine": "out.txt"}, "test.en", "test.de")
    >>> report.figure("BLEU", "mine").mean
    31.4
    """
    columns = {name: Path(path) for name, path in options.columns.items()}
    scores = {name: Path(path) for name, path in options.scores.items()}
    arguments.positive(threads=options.threads, workers=options.workers)
    bounds = list(map(index, options.bounds))  # plain numbers, also of numpy
    options = options._replace(bounds=bounds, columns=columns, scores=scores)
    named = systems_at({label: str(path) for label, path in systems.items()})
    sources = [] if source is None else [Path(source)]
    test = testsets.single_test(sources, [Path(reference)])
    return evaluate_systems(named, [test], options)


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Experiment:
    """The experiment that these overrides mean to nmt-train: its settings and its directory.

    `config_dir` is a folder of your own options, as `--config-dir`. Nothing is read but conf/.
    Raises UserError for an override that does not fit, with what is near, and for a sweep.

    >>> nmt.compose(["encoding=relative", "tau=8"]).run
    PosixPath('runs/toy/relative-tau8-seed1')
    """
    folder = catalog.config_dir_override(None if config_dir is None else str(config_dir))
    return parent.experiment_of([*folder, *arguments.lines("overrides", overrides)])


def train(experiment: Experiment) -> Outcome:
    """Train in the experiment's directory, or go on there, as nmt-train does.

    A run that is finished stays as it is. The outcome has the last `step` and the `best` score on
    the development text. Raises UserError for settings that cannot be, another config or corpus in
    the directory, and where a signal (exit code 128 + its number) or trainer.max_hours (75) stopped
    the run: then it is saved, and the same call goes on.

    >>> nmt.train(nmt.compose(["encoding=relative", "tau=8"])).step
    3160
    """
    return training.train(experiment.settings, experiment.run, refuse_model=refuse_target)


def prepare(settings: Settings) -> Prepared:
    """The corpus in ids, prepared now unless it is in the cache.

    `train` and `dev` are stores of ids, `source` and `target` know segmenter and vocabulary, and
    `facts` what was dropped. Raises UserError: 66 if a file is missing, 65 if its text is unusable.
    """
    return corpus.prepare(settings)


def list_encodings(config_dir: str | Path | None = None) -> list[EncodingFacts]:
    """All options of `encoding=`, by family, and those of a folder of your own."""
    folders = () if config_dir is None else (Path(config_dir),)
    catalog.config_dir_override(*map(str, folders))  # refuses what is no directory
    catalog.check_folders(folders)
    return [
        EncodingFacts(name, family, catalog.summary("encoding", name, folders))
        for family, names in catalog.families(folders).items()
        for name in names
    ]
