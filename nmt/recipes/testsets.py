"""newstest_all and concat_seq: one test set of many, and its consecutive lines joined.

Rosendahl et al. (2019), section 5. The published counts stand here, so that sets that differ
from the paper's are named before anybody compares scores.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.data import joined
from nmt.data.corpus import read_text
from nmt.data.joined import Joined
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)

PAPER = {  # German-English sets of newstest_all, in order, with their pairs
    "newstest2008": 2051,
    "newstest2009": 2525,
    "newstest2010": 2489,
    "newstest2011": 3003,
    "newstest2012": 3003,
    "newstest2013": 3000,
    "newstest2014": 3003,
    "newstest2016": 2999,
    "newstest2017": 3004,
    "newstest2018": 2998,
}
PAPER_ALL = 28_075  # pairs of newstest_all
PAPER_JOINED = 14_038  # lines of concat_seq


class Portion(NamedTuple):
    """One test set among those that were put one behind the other."""

    name: str
    sources: list[str]
    references: list[str]


class Built(NamedTuple):
    """What was written, and what it holds."""

    whole: tuple[Path, Path]  # source and reference
    joined: tuple[Path, Path]
    portions: list[Portion]  # in the order of the files
    lines: Joined  # those of `joined`


def build(
    pairs: Sequence[tuple[str, Path, Path]],
    directory: Path,
    source_language: str,
    target_language: str,
    k: int = 2,
    names: tuple[str, str] = ("newstest_all", "concat_seq"),
) -> Built:
    """Write all sets (name, source, reference) as one, and the same with each k lines joined.

    Lines are joined across the borders of the sets, as in the paper; the last line holds what is
    left. The records beside the texts say which lines came from which file, and which lines join
    two sets. Warns where counts or order are not the paper's. Raises UserError: 65 for a source
    and reference of unequal length, or empty ones; 66 for a missing file; 2 for one name twice;
    and as `joined.write`.
    """
    given = [name for name, *_ in pairs]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise UserError(f"{twice}: two test sets of this name; give each a name of its own")
    portions = [Portion(name, *read(source, reference)) for name, source, reference in pairs]
    warnings, note = compared({p.name: len(p.sources) for p in portions}, k)
    for line in warnings:
        log.warning("%s", line)
    if note:
        log.info("%s", note)
    sources = [line for portion in portions for line in portion.sources]
    references = [line for portion in portions for line in portion.references]
    ends = _ends(portions)
    files = [path for _, *sides in pairs for path in sides]
    sets = [
        {"name": p.name, "first": end - len(p.sources) + 1, "last": end}
        for p, end in zip(portions, ends, strict=True)
    ]
    languages = source_language, target_language
    alone = joined.join(sources, references, 1)
    about = joined.described(files, 1, sets=sets)
    whole = joined.write(directory, names[0], *languages, alone, about)
    lines = joined.join(sources, references, k)
    across = sorted({1 + end // k for end in ends[:-1] if end % k})
    about = joined.described(list(whole), k, across=across)
    both = joined.write(directory, names[1], *languages, lines, about)
    return Built(whole, both, portions, lines)


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


def compared(counts: Mapping[str, int], k: int) -> tuple[list[str], str | None]:
    """Warnings where sets (name to lines) differ from the paper's, and what to know besides.

    Sets of other names are nobody's business, unless they mingle with the paper's.
    """
    ours = [name for name in counts if name in PAPER]
    if not ours:
        return [], None
    warnings = [
        f"{name}: {counts[name]} lines, but the paper's set has {PAPER[name]}"
        for name in ours
        if counts[name] != PAPER[name]
    ]
    if ours != [name for name in PAPER if name in ours]:
        warnings.append("the sets are not in the paper's order, which decides what is joined")
    if others := [name for name in counts if name not in PAPER]:
        warnings.append(f"not among the paper's sets: {', '.join(others)}")
    missing = [name for name in PAPER if name not in counts]
    if missing:
        note = f"{len(ours)} of the paper's {len(PAPER)} sets; missing: {', '.join(missing)}"
        return warnings, note
    lines = sum(counts.values())
    totals = [("pairs in all", lines, PAPER_ALL)]
    if k == 2:
        totals.append(("joined lines", -(-lines // k), PAPER_JOINED))
    warnings += [
        f"{here} {what}, but the paper has {paper}" for what, here, paper in totals if here != paper
    ]
    agreed = " and ".join(f"{here} {what}" for what, here, paper in totals if here == paper)
    return warnings, f"{agreed}, as in the paper" if agreed else None


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
    numbers: list[int] = []
    before = None
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise UserError(f"{path}:{number}: no name; name the document of each line", Exit.DATA)
        last = numbers[-1] if numbers else 0
        numbers.append(last if name == before else last + 1)
        before = name
    return numbers


def _ends(portions: Sequence[Portion]) -> list[int]:
    """The last line of each portion in the whole, counted from 1."""
    ends: list[int] = []
    for portion in portions:
        ends.append((ends[-1] if ends else 0) + len(portion.sources))
    return ends
