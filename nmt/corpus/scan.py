"""The files of a corpus: do they exist, are they parallel; hashes, and lines in chunks."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES
from nmt.errors import Exit, UserError
from nmt.text.lines import opened, raw_lines, side_file
from nmt.toy.recipe import ensure_text

SPLITS = ("train", "dev")
CHUNK = 5000  # lines that one worker takes at once
Row: TypeAlias = tuple[bytes, ...]  # a line of each file, without line ends


class Scan(NamedTuple):
    """The result of one pass over a file; of a compressed one it concerns the text in it."""

    path: Path
    sha256: str
    lines: int


def scan(path: Path, hint: str = "check the path") -> Scan:
    """Hash a text file and count its lines; UserError if it is missing, damaged or empty."""
    digest, lines, block = hashlib.sha256(), 0, b"\n"
    with opened(path, hint) as stream:
        rows = iter(stream)
        while read := b"".join(islice(rows, CHUNK)):
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
    """Lines of parallel files."""

    text: "ParallelText"  # that they are of, but without what is held out or read instead
    numbers: Sequence[int]  # of its lines in their files, from 1
    lines: tuple[list[bytes], ...]  # of each file, with their line ends
    held: frozenset[int] = frozenset()  # numbers of those that are empty, since they are held out

    def rows(self) -> Iterator[Row]:
        """Yield the lines of all files at once, without line ends and byte order marks."""
        first = self.numbers[0] == 1
        return zip(*(raw_lines(lines, first) for lines in self.lines), strict=True)


class ParallelText(NamedTuple):
    """Two parallel files, and the columns of the source, after their scan."""

    source: Scan
    target: Scan
    columns: dict[str, Scan]  # by name
    corpus: str = ""  # its name, if there are several
    tag: str = ""  # put before each source
    before: int = 0  # numbers of lines that are taken by corpora before it
    held: frozenset[Row] = frozenset()  # each is an empty line, wherever it is in the files
    only: dict[int, Row] | None = None  # what is read instead of the files, by numbers of lines

    @property
    def paths(self) -> list[Path]:
        """Source, target and columns."""
        return [file.path for file in (self.source, self.target, *self.columns.values())]

    def sizes(self) -> list[int]:
        """Return how many lines each chunk has."""
        total = self.source.lines if self.only is None else len(self.only)
        return [min(CHUNK, total - before) for before in range(0, total, CHUNK)]

    def verified(self) -> Iterator[Chunk]:
        """The same as `chunks`; UserError (65) at the end if the files have changed."""
        digests = [hashlib.sha256() for _ in self.paths]
        yield from _hashing(self.chunks(), digests)
        scans = (self.source, self.target, *self.columns.values())
        if [digest.hexdigest() for digest in digests] != [file.sha256 for file in scans]:
            raise self._changed()

    def _changed(self) -> UserError:
        names = ", ".join(map(str, self.paths))
        return UserError(f"{names}: changed while they were read; start again", Exit.DATA)

    def chunks(self) -> Iterator[Chunk]:
        """Read the files again, CHUNK lines at a time; UserError (65) if they are shorter now."""
        text = self._replace(held=frozenset(), only=None)
        if self.only is not None:
            rows = iter(self.only.items())
            for size in self.sizes():
                numbers, pairs = zip(*islice(rows, size), strict=True)
                yield Chunk(text, numbers, _as_lines(pairs))
            return
        with ExitStack() as stack:
            streams = [stack.enter_context(opened(path)) for path in self.paths]
            for number, size in enumerate(self.sizes()):
                lines = tuple(list(islice(stream, size)) for stream in streams)
                if any(len(part) != size for part in lines):
                    raise self._changed()
                first = number * CHUNK + 1
                chunk = Chunk(text, range(first, first + size), lines)
                if self.held:
                    read = dict(zip(chunk.numbers, chunk.rows(), strict=True))
                    held = frozenset(row for row, pair in read.items() if pair in self.held)
                    lines = _as_lines((read | dict.fromkeys(held, (b"", b""))).values())
                    chunk = chunk._replace(lines=lines, held=held)
                yield chunk


def _hashing(chunks: Iterator[Chunk], digests: Sequence["hashlib._Hash"]) -> Iterator[Chunk]:
    """Yield chunks, and add the lines of each file to its digest."""
    for chunk in chunks:
        for digest, lines in zip(digests, chunk.lines, strict=True):
            digest.update(b"".join(lines))
        yield chunk


def _as_lines(rows: Iterable[Row]) -> tuple[list[bytes], ...]:
    """Return the lines of each file."""
    return tuple([line + b"\n" for line in lines] for lines in zip(*rows, strict=True))


def scan_files(data: Data) -> dict[str, list[ParallelText]]:
    """Scan the training and development files; one text for each corpus."""
    ensure_text(data)
    texts: dict[str, list[ParallelText]] = {split: [] for split in SPLITS}
    for name, corpus in sorted(data.corpora.items()):
        root = Path(data.root or "", name) if corpus.root is None else Path(corpus.root)
        languages = (data.source_language, data.target_language)
        for split in SPLITS if corpus.dev_source else ("train",):
            files = dict[str, str]()
            for side, code in zip(SIDES, languages, strict=True):
                key = f"{split}_{side}"
                files[key] = str(root / (getattr(corpus, key) or f"train.{code}"))
            # one more than it has: the last line of a corpus is not next to the first of another
            before = sum(text.source.lines + 1 for text in texts[split])
            text = _scan_pair(files, f"set data.corpora.{name}.root, or its {{}}")
            text = text._replace(corpus=name, tag=corpus.tag or "", before=before)
            texts[split].append(text)
    for split in ("train",) if data.dev_lines else SPLITS:
        if not texts[split]:
            files = {key: getattr(data, key) for key in (f"{split}_{side}" for side in SIDES)}
            instead = data.other_dev if split == "dev" else ""
            text = _scan_pair(files, f"set data.root or data.{{}}{instead}")
            for name, column in data.columns.items():
                hint = f"set data.columns.{name}.{split}"
                text.columns[name] = scan(Path(getattr(column, split)), hint)
                check_parallel(text.columns[name], text.source)
            texts[split] = [text]
    if data.dev_lines:
        train, dev = _divided(texts["train"][0], data.dev_lines)
        return {"train": [train], "dev": [dev]}
    return texts


def _divided(text: ParallelText, number: int) -> tuple[ParallelText, ParallelText]:
    """Return the text to train on, and development text of `number` of its pairs, evenly spread.

    Wherever one of these pairs occurs in the text to train on, its line is empty on both sides, so
    that all lines keep their numbers. Each hash is of what is read. Raises UserError (65) if these
    are more than half of the lines.
    """
    total = text.source.lines
    if 2 * number > total:
        raise UserError(
            f"data.dev_lines={number}: {text.source.path} has {total} lines; hold out half of them "
            "at most",
            Exit.DATA,
        )
    only = dict[int, Row]()
    for chunk in text.chunks():
        for row, pair in zip(chunk.numbers, chunk.rows(), strict=True):
            is_next = len(only) < number and row > total * len(only) // number
            if is_next and all(map(bytes.strip, pair)):  # no border between documents
                only[row] = pair
    return _hashed(text._replace(held=frozenset(only.values()))), _hashed(text._replace(only=only))


def _hashed(text: ParallelText) -> ParallelText:
    """Return the text as if it was scanned: with the hashes of the lines that it is read as."""
    digests, total = (hashlib.sha256(), hashlib.sha256()), sum(text.sizes())
    deque(_hashing(text.chunks(), digests), maxlen=0)
    source, target = (
        Scan(path, digest.hexdigest(), total)
        for path, digest in zip(text.paths, digests, strict=True)
    )
    return text._replace(source=source, target=target)


def _scan_pair(files: dict[str, str], hint: str) -> ParallelText:
    """Scan two parallel files, by their keys, which stand for {} in the hint."""
    source, target = (scan(side_file(path, hint.format(key))) for key, path in files.items())
    check_parallel(source, target)
    return ParallelText(source, target, {})
