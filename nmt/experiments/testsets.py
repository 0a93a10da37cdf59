"""Test sets: those of corpora, of the paper's tables, of joined lines, and whether they fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.config import Files, Settings, Toy
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.errors import Exit, UserError
from nmt.experiments.plan import PlannedRun
from nmt.overrides.compose import Experiment
from nmt.overrides.tables import ScaleTests

if TYPE_CHECKING:
    from nmt.data.prepare import Prepared

JOINED = "joined"  # the kind that is made of another
DIRECTORY = "tests"  # of those made here, beside the runs


class ParallelFiles(NamedTuple):
    """One test set, two files whose lines belong together."""

    name: str  # `newstest_all`; also the name of the translations in the run directories
    about: str  # a sentence on what it is
    source: Path
    reference: Path
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences

    def read(self) -> tuple[list[str], list[str]]:
        """The lines of both sides; raises UserError (65) unless they are parallel."""
        sources, references = read_text(self.source), read_text(self.reference)
        if len(sources) != len(references) or not sources:
            raise UserError(
                f"{self.source}: has {len(sources)} lines, but {self.reference} has "
                f"{len(references)}; line N of both must belong together",
                Exit.DATA,
            )
        return sources, references


def of_corpus(settings: Settings) -> tuple[str, str]:
    """The files of a corpus's own test set, source and target; placeholders where none is named.

    Those of the embedded corpus lie in its prepared directory, which is made if it is missing.
    """
    data = settings.data
    if isinstance(data, Files):
        source = data.test_source or f"TEST.{data.source_language}"
        return source, data.test_target or f"TEST.{data.target_language}"
    from nmt import corpus

    prepared = corpus.prepare(settings)
    facts = prepared.facts
    return str(Path(prepared.path, facts["test_source"])), str(
        Path(prepared.path, facts["test_target"])
    )


def _of_corpus(name: str, settings: Settings) -> ParallelFiles:
    source, reference = map(Path, of_corpus(settings))
    return ParallelFiles(name, "", source, reference)


def refuse_unnamed(runs: Sequence[PlannedRun]) -> None:
    """Raise UserError unless the config of every run names all files of its test set."""
    for data in [run.settings.data for run in runs]:
        if not isinstance(data, Files):
            continue
        named = {"data.test_source": data.test_source, "data.test_target": data.test_target}
        named |= {f"data.columns.{name}.test": c.test for name, c in data.columns.items()}
        if unnamed := [key for key, path in named.items() if not path]:
            raise UserError(f"{', '.join(unnamed)}: no value; name the test set to compare on")


def shared(
    runs: Sequence[PlannedRun], corpora: Mapping[str, "Prepared"], name: str
) -> ParallelFiles:
    """The test set of the runs' corpora, under this name.

    Raises UserError for one that cannot be read (65, 66), and for runs whose test sets differ.
    """
    settings = {id(corpora[run.name]): run.settings for run in runs}.values()
    tests = [_of_corpus(name, each) for each in settings]
    if any(test.read() != tests[0].read() for test in tests):
        raise UserError(f"{runs[0].name} and others have different test sets; compare apart")
    return tests[0]


def read_by_sentence(tests: Sequence[ParallelFiles]) -> list[ParallelFiles]:
    """The tests, those of joined lines to be read by sentence; UserError (2) if there are none."""
    joint = [joined.parts_of(test.source, test.reference) is not None for test in tests]
    if not any(joint):
        raise UserError(
            "--by-sentence: no test has joined lines, with the record of nmt-recipe testset"
        )
    return [test._replace(by_sentence=yes) for test, yes in zip(tests, joint, strict=True)]


def joined_pairs(
    tests: Sequence[ParallelFiles], languages: tuple[str, str], directory: Path
) -> list[ParallelFiles]:
    """Make a test set of each, whose lines are two consecutive ones of it."""
    made = []
    for test in tests:
        pairs = joined.join(*test.read())
        name = f"{test.name}-joined"
        record = joined.described([test.source, test.reference], 2)
        source, reference = joined.write(directory, name, *languages, pairs, record)
        about = f"consecutive pairs of {test.name}, joined"
        made.append(ParallelFiles(name, about, source, reference))
    return made


def of_table(experiments: Sequence[Experiment], kind: str) -> dict[str, ParallelFiles]:
    """The test set of a kind of the scale for each corpus, by the name of the corpus.

    Raises UserError: 66 for a missing file, 65 for one that cannot be read or sides of unequal
    lines.
    """
    by_corpus: dict[str, ParallelFiles] = {}
    for experiment in experiments:
        if (corpus := experiment.settings.data.name) in by_corpus:
            continue
        assert experiment.scale is not None, "a table is at a scale"
        tests = experiment.scale.tests
        name: str = getattr(tests, kind)
        if tests.root is not None:
            by_corpus[corpus] = _on_disk(Path(tests.root), name, tests, experiment.settings)
        else:
            by_corpus[corpus] = _made(experiment, name, kind)
        by_corpus[corpus].read()  # says what is wrong before anything is trained
    return by_corpus


def _on_disk(root: Path, name: str, tests: ScaleTests, settings: Settings) -> ParallelFiles:
    data = settings.data
    paths = [root / f"{name}.{code}" for code in (data.source_language, data.target_language)]
    for path in paths:
        if not path.is_file():
            how = f"{tests.made_by} makes it" if tests.made_by else "see tests.root"
            raise UserError(f"{path}: no such file; {how}", Exit.NO_INPUT)
    return ParallelFiles(name, f"{name} in {root}.", paths[0], paths[1])


def _made(experiment: Experiment, name: str, kind: str) -> ParallelFiles:
    """The corpus's own test text, or the same joined in pairs."""
    source, reference = map(Path, of_corpus(experiment.settings))
    sources, references = read_text(source), read_text(reference)
    if kind != JOINED:
        about = f"The test text of the corpus, {len(sources):,} pairs."
        return ParallelFiles(name, about, source, reference)
    data, directory = experiment.settings.data, experiment.run.parent / DIRECTORY
    if isinstance(data, Toy):
        limit = data.train_longest
        made = join_toy(sources, references, limit)
        about = (
            f"The test sentences of up to {limit} words, each two consecutive ones joined into one "
            "by a comma and 'und', which the grammar has: a full stop within a line would be "
            "unknown to models of this corpus."
        )
    else:
        made = joined.join(sources, references)
        about = "The lines of the test text, each two consecutive ones joined by a space."
    record = joined.described([source, reference], 2, how=about)
    paths = joined.write(directory, name, data.source_language, data.target_language, made, record)
    return ParallelFiles(name, about, *paths)


def join_toy(sources: Sequence[str], references: Sequence[str], limit: int) -> joined.Joined:
    """Join pairs of sentences of the embedded grammar, none longer than `limit` words.

    What comes out is a sentence of the grammar again, and its reference the right one (tested).
    """
    from nmt.data.toy import together, words

    short = [pair for pair in zip(sources, references, strict=True) if len(words(pair[0])) <= limit]
    linked = [
        half
        for first, second in zip(short[::2], short[1::2], strict=False)
        for half in together(first, second)
    ]
    linked += short[len(linked) :]
    return joined.join([s for s, _ in linked], [r for _, r in linked])
