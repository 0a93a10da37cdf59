"""Test sets put together, and their consecutive lines joined: newstest_all and concat_seq.

Rosendahl et al. (2019), section 5.
"""

import logging
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nmt.data import joined
from nmt.data.corpus import read_parallel, read_text
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)
ALL, JOINED = "newstest_all", "concat_seq"


class JoinedSets(NamedTuple):
    """A test set on disk."""

    texts: tuple[Path, Path]  # source and reference
    lines: dict[str, int]  # by name: of each set that was read, and its own


def join_sets(
    pairs: Sequence[tuple[str, Path, Path]],
    directory: Path,
    languages: tuple[str, str],
    name: str,
    k: int = 2,
    documents: Path | None = None,
) -> JoinedSets:
    """Write all sets (name, source, reference) as one, each k consecutive lines joined into one.

    Lines are joined across the borders of the sets, as in the paper, but with `documents` (a name
    for each line) only within a document; the last line holds what is left. The record next to the
    texts says which lines came from which set, and which lines join two sets. Raises UserError: 65
    for a source and reference of unequal length, or empty ones; 66 for a missing file; 2 for one
    name twice; and as `joined.write`.
    """
    read_sets: dict[str, tuple[list[str], list[str]]] = {}
    for set_name, source, reference in pairs:
        if set_name in read_sets:
            raise UserError(f"{set_name}: two test sets of this name; give each a name of its own")
        read_sets[set_name] = read(source, reference)
    sources, references = ([line for s in read_sets.values() for line in s[i]] for i in (0, 1))
    ends = list(accumulate(len(lines) for lines, _ in read_sets.values()))
    starts = [1, *(end + 1 for end in ends)]
    about: dict[str, Any] = {
        "sets": [
            {"name": set_name, "first": first, "last": last}
            for set_name, first, last in zip(read_sets, starts, ends, strict=False)
        ]
    }
    inputs, numbers = [path for _, *sides in pairs for path in sides], None
    if documents:
        numbers = document_numbers(documents, len(sources))
        inputs.append(documents)
        about["documents"] = len(set(numbers))
        log.info("%d documents", about["documents"])
    else:
        about["across"] = sorted({1 + end // k for end in ends[:-1] if end % k})
    lines = joined.join(sources, references, k, numbers)
    described = joined.described(inputs, k, **about)
    texts = joined.write(directory, name, *languages, lines, described)
    counts = {set_name: len(side) for set_name, (side, _) in read_sets.items()}
    return JoinedSets(texts, {**counts, name: len(lines.sources)})


def read(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """The lines of a test set; UserError (65) unless there are some, and as many on both sides."""
    sources = read_text(source)
    references = read_parallel(reference, sources, source)
    if not sources:
        raise UserError(f"{source}: the file is empty; give a test set", Exit.DATA)
    for path, side in ((source, sources), (reference, references)):
        if empty := sum(not line.strip() for line in side):
            log.warning("%s: empty lines: %d; they stay, as empty sentences", path, empty)
    return sources, references


def document_numbers(path: Path, lines: int) -> list[int]:
    """A number for each line of a test set, from a file of document names, one a line.

    Equal names in a row are one document. Raises UserError (65): a line without a name, or
    another number of lines than the test set has.
    """
    names = read_text(path)
    if len(names) != lines:
        raise UserError(
            f"{path}: names the documents of {len(names)} lines, but the test set has {lines}",
            Exit.DATA,
        )
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise UserError(f"{path}:{number}: no name; name the document of each line", Exit.DATA)
    return list(accumulate((a != b for a, b in pairwise(names)), initial=1))
