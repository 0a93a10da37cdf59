"""Test sets: those of corpora, of the paper's tables, of joined lines, and whether they fit."""

import re
from collections.abc import Sequence, Set
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmt import corpus
from nmt.compare.text.tab_separated import TRAINING
from nmt.config.settings import Settings
from nmt.data import joined
from nmt.data.corpus import packed, read_parallel, read_text
from nmt.data.toy.recipe import ensure_text
from nmt.decode.parts import tag_and_rest
from nmt.errors import Exit, UserError
from nmt.experiments.systems import System

TEST = "test"  # the name of the one test set that is given none
NAMED = re.compile(r"(?!\.)[\w.+-]+")  # names of tests: they are names of files
DIRECTORY = "tests"  # of those made here, next to the runs


class ParallelFiles(NamedTuple):
    """One test set, two files whose lines belong together."""

    name: str  # `newstest_all`
    about: str  # a sentence on what it is
    source: Path | None  # None: there are references alone, which no model can translate
    reference: Path
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences

    def read(self) -> tuple[list[str] | None, list[str]]:
        """The lines of both sides; raises UserError (65) unless they are parallel."""
        references = read_text(self.reference)
        if not references:
            raise UserError(f"{self.reference}: the file is empty; give references", Exit.DATA)
        if self.source is None:
            return None, references
        sources = read_parallel(self.source, references, self.reference)
        return list(joined.by_sentence(self.source)) if self.by_sentence else sources, references


def single_test(source: Path | None, reference: Path) -> ParallelFiles:
    """The one test set of an evaluation, by its files."""
    files = " and ".join(path.name for path in (source, reference) if path)
    return ParallelFiles(TEST, files, source, reference)


def parse_test(argument: str) -> ParallelFiles:
    """Read NAME=SRC,REF; raises UserError (2) for anything else."""
    name, equals, rest = argument.partition("=")
    files = rest.split(",")
    if not equals or not NAMED.fullmatch(name) or len(files) != 2 or not all(files):
        raise UserError(f"--test {argument}: expected NAME=SRC,REF, the name fit for a file name")
    if name == TRAINING:
        raise UserError(f"--test {argument}: {name} stands for the systems themselves in --tsv")
    source, reference = map(Path, files)
    return ParallelFiles(name, f"{source.name} and {reference.name}", source, reference)


def corpus_test_files(settings: Settings) -> tuple[str, str]:
    """The files of a corpus's own test set, source and target; placeholders where none is named."""
    data = settings.data
    ensure_text(data)
    source = data.test_source or f"TEST.{data.source_language}"
    target = data.test_target or f"TEST.{data.target_language}"
    return str(packed(Path(source))), str(packed(Path(target)))


def test_of_runs(systems: Sequence[System]) -> ParallelFiles:
    """The test set that the corpora of runs name.

    Raises UserError: 2 for systems that are no runs, for a config that names no test set, and for
    runs whose test sets differ; 65 or 66 for what cannot be read.
    """
    tests: dict[bytes, ParallelFiles] = {}
    for system in systems:
        if system.file:
            raise UserError(f"{system.file}: names no test set; add --reference REF")
        for model in system.models:
            if model.run is None:
                raise UserError(
                    f"{model.place}: names no test set; add --reference REF --source SRC"
                )
            if (key := corpus.key(model.settings)) not in tests:
                if unnamed := unnamed_files(model.settings):
                    raise UserError(
                        f"{model.place}: its config has no {', '.join(unnamed)}; "
                        "add --reference REF --source SRC"
                    )
                source, reference = map(Path, corpus_test_files(model.settings))
                about = f"The test text of the corpus {model.settings.data.name}."
                tests[key] = ParallelFiles(TEST, about, source, reference)
    first, *others = tests.values()
    if any(test.read() != first.read() for test in others):
        raise UserError(
            f"{systems[0].label} and others have different test sets; evaluate them apart, or add "
            "--reference REF --source SRC"
        )
    return first


def unnamed_files(settings: Settings) -> list[str]:
    """The keys of files of the test set that a config leaves open; none: it names all."""
    data = settings.data
    paths = {"data.test_source": data.test_source, "data.test_target": data.test_target}
    paths |= {f"data.columns.{name}.test": c.test for name, c in data.columns.items()}
    return [key for key, path in paths.items() if not path]


def read_by_sentence(tests: Sequence[ParallelFiles]) -> list[ParallelFiles]:
    """The tests, those of joined lines to be read by sentence; UserError (2) if there are none."""
    joint = [
        test.source is not None and joined.parts_of(test.source, test.reference) is not None
        for test in tests
    ]
    if not any(joint):
        raise UserError(
            "--by-sentence: no test has joined lines, with the record of nmt-recipe testset"
        )
    return [test._replace(by_sentence=yes) for test, yes in zip(tests, joint, strict=True)]


def joined_pairs(
    test: ParallelFiles,
    languages: tuple[str, str],
    directory: Path,
    tags: Set[str] = frozenset(),
) -> ParallelFiles:
    """Make a test set whose lines are two consecutive ones of another.

    As in training, sources that begin with different `tags` are not joined; equal ones stand once.
    """
    sources, references = test.read()
    assert test.source is not None and sources is not None, "there is something to join"
    divided = [tag_and_rest(line, tags) for line in sources]
    numbers = {tag: number for number, tag in enumerate({tag for tag, _ in divided})}
    lines = joined.join(sources, references, documents=[numbers[tag] for tag, _ in divided])
    rests = iter(rest if tag else line for (tag, rest), line in zip(divided, sources, strict=True))
    for of_line, _ in lines.parts:
        of_line[1:] = [*islice(rests, len(of_line))][1:]
    name = f"{test.name}-joined"
    record = joined.described([test.source, test.reference], 2)
    paths = joined.write(directory, name, *languages, lines, record)
    return ParallelFiles(name, f"consecutive pairs of {test.name}, joined", *paths)
