"""The test sets of the paper's tables, found on the disk or made from a corpus's own test text."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.config import ScaleTests, Settings, Toy
from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.errors import Exit, UserError
from nmt.experiments.texts import test_texts
from nmt.overrides.compose import Experiment

JOINED = "joined"  # the kind that is made of another
DIRECTORY = "tests"  # of those made here, beside the runs


class TextPair(NamedTuple):
    """Two files whose lines belong together."""

    name: str  # `newstest_all`
    about: str  # a sentence on what it is
    source: Path
    reference: Path


def find_all(runs: Sequence[Experiment], kind: str) -> dict[str, TextPair]:
    """The test set of a kind for each corpus, by the name of the corpus.

    Raises UserError: 66 for a missing file, 65 for one that cannot be read or sides of unequal
    lengths.
    """
    found: dict[str, TextPair] = {}
    for asked in runs:
        if (corpus := asked.settings.data.name) in found:
            continue
        assert asked.scale is not None, "a table is at a scale"
        tests = asked.scale.tests
        name: str = getattr(tests, kind)
        if tests.root is not None:
            found[corpus] = _on_disk(Path(tests.root), name, tests, asked.settings)
        else:
            found[corpus] = _own(asked, name, kind)
        one = found[corpus]
        lines = [len(read_text(path)) for path in (one.source, one.reference)]
        if lines[0] != lines[1]:
            raise UserError(
                f"{one.source} has {lines[0]} lines, {one.reference} {lines[1]}; "
                "the two must be parallel",
                Exit.DATA,
            )
    return found


def _on_disk(root: Path, name: str, tests: ScaleTests, settings: Settings) -> TextPair:
    data = settings.data
    paths = [root / f"{name}.{code}" for code in (data.source_language, data.target_language)]
    for path in paths:
        if not path.is_file():
            how = f"{tests.made_by} makes it" if tests.made_by else "see tests.root"
            raise UserError(f"{path}: no such file; {how}", Exit.NO_INPUT)
    return TextPair(name, f"{name} in {root}.", *paths)


def _own(asked: Experiment, name: str, kind: str) -> TextPair:
    """The corpus's own test text, or the same joined in pairs."""
    source, reference = map(Path, test_texts(asked.settings))
    sources, references = read_text(source), read_text(reference)
    if kind != JOINED:
        return TextPair(
            name, f"The test text of the corpus, {len(sources):,} pairs.", *(source, reference)
        )
    data, directory = asked.settings.data, asked.run.parent / DIRECTORY
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
    told = joined.described([source, reference], 2, how=about)
    paths = joined.write(directory, name, data.source_language, data.target_language, made, told)
    return TextPair(name, about, *paths)


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
