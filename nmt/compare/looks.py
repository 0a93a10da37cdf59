"""Where one system's first run looks: profiles, shares never attended, coverage of the examples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nmt.compare import attention, gather
from nmt.compare.report import ALL
from nmt.compare.study import Profile, Test
from nmt.modeldir import Trained


class Read(NamedTuple):
    """What a system read and wrote of one test set."""

    sources: Sequence[str]
    hypotheses: Sequence[str]  # of its first run
    columns: Mapping[str, Sequence[str]]  # beside the sources
    lengths: Sequence[int]  # of the sources


def watched(
    trained: Trained, test: Test, read: Read, system: int, seed: int
) -> tuple[Test, list[Profile]]:
    """Watch a model read a sample of each bucket and the examples, all in one pass.

    The sample is drawn by `seed` and the same for every system. Returns the test with what was
    seen, and the profiles of all heads by bucket.
    """
    by_bucket = {
        row.name: gather.sampled(row, read.lengths, read.sources, seed)
        for row in test.rows
        if row.name != ALL and row.pairs
    }
    examples = [example.line - 1 for example in test.examples]
    lines = sorted({*examples, *(line for some in by_bucket.values() for line in some)})
    place = {line: i for i, line in enumerate(lines)}
    looked = attention.look(
        trained,
        [read.sources[line] for line in lines],
        [read.hypotheses[line] for line in lines],
        {name: [column[line] for line in lines] for name, column in read.columns.items()},
        {name: [place[line] for line in some] for name, some in by_bucket.items()},
    )
    shares = {
        name: attention.unattended(looked.sentences[place[line]] for line in some)
        for name, some in by_bucket.items()
    }
    test = gather.with_unattended(test, system, shares)
    seen = [looked.sentences[place[line]] for line in examples]
    pieces, coverage = [s.pieces for s in seen], [attention.coverage(s) for s in seen]
    test = gather.with_coverage(test, system, pieces, coverage)
    return test, attention.profiles(looked, system, test.name)
