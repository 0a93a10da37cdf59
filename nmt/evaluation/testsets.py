"""Test sets: the files of a user or a corpus, and lines of them joined into longer ones."""

import re
from collections.abc import Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from nmt.config.data import tags_of
from nmt.config.settings import Settings
from nmt.decode.split import tag_and_rest
from nmt.errors import Exit, UserError
from nmt.evaluation.systems import System
from nmt.text.lines import find_packed, read_parallel, read_text
from nmt.toy import ensure_text
from nmt.training import corpus

TEST = "test"  # the name of a single test set
NAMED = re.compile(r"(?!\.)[\w.+-]+")  # names of tests: they are names of files
Lines = list[str]


class ParallelFiles(NamedTuple):
    """A test set: pairs of files whose lines belong together, one after the other."""

    name: str  # `newstest_all`
    about: str  # a sentence on what it is
    sources: Sequence[Path]  # none: there are references alone
    references: Sequence[Path]
    join: int = 1  # so many consecutive lines of a file are read as one
    tags: Set[str] = frozenset()  # what may stand before a source: only equal ones are joined

    def read(self) -> tuple[Lines | None, Lines, list[Lines] | None]:
        """Sources, references, and the sentences of each joined reference.

        None: there are references alone, which no model can translate; and no line is joined.
        Raises UserError (65) unless both sides are parallel.
        """
        pairs = list[tuple[Lines, Lines]]()  # source and reference sentences of each line
        for number, path in enumerate(self.references):
            references = read_text(path)
            if not references:
                raise UserError(f"{path}: the file is empty; give references", Exit.DATA)
            sources = [""] * len(references)
            if self.sources:
                sources = read_parallel(self.sources[number], references, path)
            pairs += join_lines(sources, references, self.join, self.tags)
        parts = [reference for _, reference in pairs]
        sources = [" ".join(source) for source, _ in pairs]
        references = list(map(" ".join, parts))
        return sources if self.sources else None, references, parts if self.join > 1 else None

    @property
    def described(self) -> str:
        return f"{self.references[0]}{f', {self.join} lines joined,' if self.join > 1 else ''}"

    @property
    def paths(self) -> list[tuple[str, Path]]:
        sides = ("source", self.sources), ("reference", self.references)
        return [(side, path) for side, paths in sides for path in paths]


def join_lines(
    sources: Sequence[str], references: Sequence[str], k: int, tags: Set[str] = frozenset()
) -> list[tuple[Lines, Lines]]:
    """The sentences of each joined line: k consecutive ones, fewer in the last line.

    As in training, sources that begin with different `tags` are not joined; equal ones stand once.
    Rosendahl et al. (2019), section 5, join pairs to see how a model copes with longer lines than
    in its training.
    """
    lines = list[tuple[Lines, Lines]]()
    before = None
    for source, reference in zip(sources, references, strict=True):
        tag, rest = tag_and_rest(source, tags)
        if not lines or len(lines[-1][0]) == k or tag != before:
            lines.append(([source], [reference]))
        else:
            lines[-1][0].append(rest if tag else source)
            lines[-1][1].append(reference)
        before = tag
    return lines


def single_test(
    sources: Sequence[Path], references: Sequence[Path], join: int = 1
) -> ParallelFiles:
    """The one test set of an evaluation; UserError (2) unless there are as many of both."""
    if sources and len(sources) != len(references):
        counts = f"{len(sources)} sources and {len(references)} references"
        raise UserError(f"--source, --reference: {counts}; give as many, in the same order")
    files = " and ".join(path.name for path in (*sources, *references))
    return ParallelFiles(TEST, f"{files}.", sources, references, join)


def parse_test(argument: str, join: int = 1) -> ParallelFiles:
    """Read NAME=SRC,REF[,SRC,REF ...]; raises UserError (2) for anything else."""
    name, equals, rest = argument.partition("=")
    files = rest.split(",")
    if not equals or not NAMED.fullmatch(name) or len(files) % 2 or not all(files):
        raise UserError(f"--test {argument}: expected NAME=SRC,REF, the name fit for a file name")
    sources, references = list(map(Path, files[::2])), list(map(Path, files[1::2]))
    return single_test(sources, references, join)._replace(name=name)


def corpus_test_files(settings: Settings) -> tuple[str, str]:
    """The files of a corpus's test set, source and target; placeholders if it names none."""
    data = settings.data
    ensure_text(data)
    source = data.test_source or f"TEST.{data.source_language}"
    target = data.test_target or f"TEST.{data.target_language}"
    return str(find_packed(Path(source))), str(find_packed(Path(target)))


def corpus_test(settings: Settings, join: int = 1, tags: Set[str] = frozenset()) -> ParallelFiles:
    source, target = map(Path, corpus_test_files(settings))
    about = f"The test text of the corpus {settings.data.name}."
    return ParallelFiles(TEST, about, [source], [target], join, tags)


def columns_of_test(settings: Settings) -> dict[str, str]:
    """The columns of a corpus's test set, by name; placeholders if it names none."""
    return {name: c.test or f"TEST.{name}" for name, c in settings.data.columns.items()}


def test_of_runs(systems: Sequence[System], join: int = 1) -> ParallelFiles:
    """The test set that the corpora of runs name.

    Raises UserError: 2 for systems that are no runs, for a config that names no test set, and for
    runs whose test sets differ; 65 or 66 for what cannot be read.
    """
    remedy = "add --reference REF --source SRC"
    tests: dict[bytes, ParallelFiles] = {}
    for system in systems:
        if system.file or not all(model.run for model in system.models):
            raise UserError(f"{system.typed[0]}: names no test set; {remedy}")
        for settings in (model.settings for model in system.models):
            if unnamed := unnamed_files(settings):
                where = f"{system.typed[0]}: its config has no {', '.join(unnamed)}"
                raise UserError(f"{where}; {remedy}")
            tests[corpus.key(settings)] = corpus_test(settings, join, {*tags_of(settings.data)})
    texts = [test.read() for test in tests.values()]
    if any(first != second for first, second in pairwise(texts)):
        label = systems[0].label
        raise UserError(
            f"{label} and later systems have different test sets; evaluate them apart, or {remedy}"
        )
    return next(iter(tests.values()))


def unnamed_files(settings: Settings) -> list[str]:
    """The keys of test files that a config does not set."""
    data = settings.data
    paths = {"data.test_source": data.test_source, "data.test_target": data.test_target}
    paths |= {f"data.columns.{name}.test": c.test for name, c in data.columns.items()}
    return [key for key, path in paths.items() if not path]
