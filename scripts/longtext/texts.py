"""The test texts of each part of the plan."""

from pathlib import Path

from nmt.config import Toy
from nmt.data import joined, toy
from nmt.data.corpus import read_text
from nmt.data.joined import Joined
from nmt.errors import UserError
from nmt.experiments.plan import PlannedRun
from nmt.experiments.testsets import ParallelFiles, corpus_test_files, join_toy
from scripts.longtext.plan import GRAMMAR, MANUALS, REMEDY, SCAN, Folders

WHOLE = "whole"  # the test text of which all lines are single ones
TIMES = {GRAMMAR: (1, 2, 4, 8), MANUALS: (2, 4), REMEDY: (2, 4)}  # lines that are joined
SENTENCES, LEAST, MOST = 240, 4, 24  # of the grammar, to be joined; words of each


def tests_of(folders: Folders, part: str, run: PlannedRun) -> list[ParallelFiles]:
    """The test texts of a part; those of joined lines are made if need be. None to choose rates.

    `run`: one of the part; the corpus names its own test text.
    """
    if part not in (GRAMMAR, SCAN, MANUALS, REMEDY):
        return []
    source, reference = map(Path, corpus_test_files(run.settings))
    tests = [ParallelFiles(WHOLE, "", source, reference)]
    for k in TIMES.get(part, ()):
        lines = _joined(run, part, k)
        directory = folders.runs / "tests" / (GRAMMAR if part == GRAMMAR else MANUALS)
        data = run.settings.data
        about = joined.described([] if part == GRAMMAR else [source, reference], k)
        place = directory, f"joined{k}", data.source_language, data.target_language
        tests.append(ParallelFiles(place[1], "", *joined.write(*place, lines, about)))
    return tests


def _joined(run: PlannedRun, part: str, k: int) -> Joined:
    """Each k lines joined: sentences of the grammar that no run was trained on, or the manuals."""
    source, reference = map(Path, corpus_test_files(run.settings))
    if part != GRAMMAR:
        return joined.join(read_text(source), read_text(reference), k)
    data = run.settings.data
    if not isinstance(data, Toy):
        raise UserError(f"{run.name}: not of the embedded grammar")
    seen = read_text(source.with_name(f"train.{data.source_language}"))
    pairs = toy.pairs(SENTENCES, LEAST, MOST, "joined", frozenset(seen))
    return join_toy([s for s, _ in pairs], [r for _, r in pairs], MOST, k)
