"""The files of a corpus: do they exist, are they parallel; hashes, and lines in chunks."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmt import config
from nmt.data.corpus import opened, side_file
from nmt.data.store import SIDES
from nmt.errors import Exit, UserError

BLOCK = 2**20  # bytes read at once
SPLITS = ("train", "dev")
CHUNK = 5000  # lines that one worker takes at once


class Scan(NamedTuple):
    """The result of one pass over a file; of a compressed one it concerns the text in it."""

    path: Path
    sha256: str
    lines: int


def scan(path: Path, hint: str = "check the path") -> Scan:
    """Hash a text file and count its lines; UserError if it is missing, damaged or empty."""
    digest, lines, block = hashlib.sha256(), 0, b"\n"
    with opened(path, hint) as stream:
        while read := stream.read(BLOCK):
            block = read
            digest.update(block)
            lines += block.count(b"\n")
    lines += not block.endswith(b"\n")
    if not lines:
        raise UserError(f"{path}: is empty; {hint}", Exit.DATA)
    return Scan(path, digest.hexdigest(), lines)


def check_parallel(source: Scan, target: Scan) -> None:
    """Raise UserError (65) if two files differ in their number of lines."""
    if source.lines != target.lines:
        raise UserError(
            f"{source.path}: {source.lines} lines, {target.path}: {target.lines}; "
            "the two must be parallel",
            Exit.DATA,
        )


class Chunk(NamedTuple):
    """Consecutive lines of parallel files."""

    number: int
    first: int  # number of its first line, from 1
    lines: tuple[list[bytes], ...]  # of each file, with their line ends


class ParallelText(NamedTuple):
    """Two parallel files, and the columns of the source, after their scan."""

    source: Scan
    target: Scan
    columns: dict[str, Scan]  # by name
    corpus: str = ""  # its name, if there are several
    tag: str = ""  # put before each source
    before: int = 0  # numbers of lines that are taken by corpora before it

    @property
    def paths(self) -> list[Path]:
        """Source, target and columns."""
        return [file.path for file in (self.source, self.target, *self.columns.values())]

    def sizes(self) -> list[int]:
        """Return how many lines each chunk has."""
        total = self.source.lines
        return [min(CHUNK, total - before) for before in range(0, total, CHUNK)]

    def chunks(self) -> Iterator[Chunk]:
        """Read the files again, CHUNK lines at a time; UserError (65) if they have changed."""
        with ExitStack() as stack:
            streams = [stack.enter_context(opened(path)) for path in self.paths]
            for number, size in enumerate(self.sizes()):
                lines = tuple(list(islice(stream, size)) for stream in streams)
                if any(len(part) != size for part in lines):
                    raise UserError(
                        f"{', '.join(map(str, self.paths))}: changed while they were read; start "
                        "again",
                        Exit.DATA,
                    )
                yield Chunk(number, number * CHUNK + 1, lines)


def scan_files(data: config.Data) -> dict[str, list[ParallelText]]:
    """Scan the training and development files, where there are any; one text for each corpus."""
    if not isinstance(data, config.Files):
        return {}
    texts: dict[str, list[ParallelText]] = {split: [] for split in SPLITS}
    for name, corpus in sorted(data.corpora.items()):
        root = Path(data.root or "", name) if corpus.root is None else Path(corpus.root)
        for split in SPLITS:
            keys = [f"{split}_{side}" for side in SIDES]
            files = [getattr(corpus, key) for key in keys]
            if split == "train":
                languages = (data.source_language, data.target_language)
                files = [f or f"train.{c}" for f, c in zip(files, languages, strict=True)]
            if None in files:
                continue
            hint = f"set data.corpora.{name}.root, or its "
            source, target = (
                scan(side_file(str(root / file), hint + key))
                for file, key in zip(files, keys, strict=True)
            )
            check_parallel(source, target)
            # one more than it has: the last line of a corpus is not next to the first of another
            before = sum(text.source.lines + 1 for text in texts[split])
            text = ParallelText(source, target, {}, name, corpus.tag or "", before)
            texts[split].append(text)
    for split in SPLITS:
        texts[split] = texts[split] or [_scan_split(data, split)]
    return texts


def _scan_split(data: config.Files, split: str) -> ParallelText:
    """Scan the files of a split that are no corpora."""
    instead = "" if split == "train" else "; or hold out training text: data.dev_lines=N"
    source, target = (
        scan(side_file(getattr(data, key), f"set data.root or data.{key}{instead}"))
        for key in (f"{split}_{side}" for side in SIDES)
    )
    check_parallel(source, target)
    columns = {
        name: scan(Path(getattr(files, split)), f"set data.columns.{name}.{split}")
        for name, files in data.columns.items()
    }
    for column in columns.values():
        check_parallel(column, source)
    return ParallelText(source, target, columns)
