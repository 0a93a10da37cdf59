"""newstest_all and concat_seq: one test set of many, and its consecutive lines joined.

Rosendahl et al. (2019), section 5. Sets that differ from the paper's are named before anybody
compares scores.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.errors import Exit, UserError
from nmt.recipes import lock as locks

log = logging.getLogger(__name__)
ALL, JOINED = "newstest_all", "concat_seq"


class Written(NamedTuple):
    """Test sets on disk."""

    texts: list[tuple[Path, Path]]  # source and reference of each set that was written
    sources: dict[str, list[str]]  # source lines by name, of what was read and what was written


def join_all(
    pairs: Sequence[tuple[str, Path, Path]],
    directory: Path,
    languages: tuple[str, str],
    k: int = 2,
    names: tuple[str, str] = (ALL, JOINED),
) -> Written:
    """Write all sets (name, source, reference) as one, and the same with each k lines joined.

    Lines are joined across the borders of the sets, as in the paper; the last line holds what is
    left. The records next to the texts say which lines came from which file, and which lines join
    two sets. Warns where counts or order are not the paper's. Raises UserError: 65 for a source
    and reference of unequal length, or empty ones; 66 for a missing file; 2 for one name twice;
    and as `joined.write`.
    """
    read_sets: dict[str, tuple[list[str], list[str]]] = {}
    for name, source, reference in pairs:
        if name in read_sets:
            raise UserError(f"{name}: two test sets of this name; give each a name of its own")
        read_sets[name] = read(source, reference)
    if differing := difference({name: len(lines) for name, (lines, _) in read_sets.items()}):
        log.warning("not the paper's newstest_all: %s", differing)
    sources, references = ([line for s in read_sets.values() for line in s[i]] for i in (0, 1))
    ends = list(accumulate(len(lines) for lines, _ in read_sets.values()))
    starts = [1, *(end + 1 for end in ends)]
    sets = [
        {"name": name, "first": first, "last": last}
        for name, first, last in zip(read_sets, starts, ends, strict=False)
    ]
    files = [path for _, *sides in pairs for path in sides]
    about = joined.described(files, 1, sets=sets)
    alone = joined.join(sources, references, 1)
    whole = joined.write(directory, names[0], *languages, alone, about)
    across = sorted({1 + end // k for end in ends[:-1] if end % k})
    about = joined.described(list(whole), k, across=across)
    lines = joined.join(sources, references, k)
    both = joined.write(directory, names[1], *languages, lines, about)
    shown = {name: lines for name, (lines, _) in read_sets.items()}
    return Written([whole, both], {**shown, names[0]: sources, names[1]: lines.sources})


def join_one(
    source: Path,
    reference: Path,
    documents: Path | None,
    directory: Path,
    languages: tuple[str, str],
    k: int,
    name: str,
) -> Written:
    """Write a test set with each k lines joined; with `documents` only lines of the same one."""
    sources, references = read(source, reference)
    inputs, more, numbers = [source, reference], {}, None
    if documents:
        numbers = document_numbers(documents, len(sources))
        inputs.append(documents)
        more = {"documents": len(set(numbers))}
        log.info("%d documents", more["documents"])
    lines = joined.join(sources, references, k, numbers)
    about = joined.described(inputs, k, **more)
    texts = joined.write(directory, name, *languages, lines, about)
    return Written([texts], {plain(source).name: sources, name: lines.sources})


def plain(path: Path) -> Path:
    """The same without .gz."""
    return path.with_name(path.name.removesuffix(".gz"))


def read(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """The lines of a test set; UserError (65) unless there are some, and as many on both sides."""
    sources, references = read_text(source), read_text(reference)
    if len(sources) != len(references):
        raise UserError(
            f"{reference}: has {len(references)} lines, but {source} has {len(sources)}; "
            "line N of both must belong together",
            Exit.DATA,
        )
    if not sources:
        raise UserError(f"{source}: the file is empty; give a test set", Exit.DATA)
    for path, side in ((source, sources), (reference, references)):
        if empty := sum(not line.strip() for line in side):
            log.warning("%s: empty lines: %d; they stay, as empty sentences", path, empty)
    return sources, references


def difference(counts: Mapping[str, int]) -> str:
    """How sets (name -> lines) differ from those of the paper's newstest_all; empty if they do not.

    Sets of other names alone are no sets of the paper, and differ in nothing.
    """
    lock = locks.read(locks.path_of("wmt19_deen"))
    paper = {name: lock.sets[name].lines for name in lock.all}
    ours = [name for name in counts if name in paper]
    counted = [name for name in ours if counts[name] != paper[name]]
    differing = [f"{name} has {counts[name]} lines, not {paper[name]}" for name in counted]
    if ours != [name for name in paper if name in ours]:
        differing.append("another order, which decides what is joined")
    differing += [f"{name} is none of them" for name in counts if name not in paper]
    differing += [f"{name} is missing" for name in paper if name not in counts]
    return "; ".join(differing) if ours else ""


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
