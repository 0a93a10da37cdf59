"""The files of a corpus: do they exist, are they parallel; hashes, and lines in chunks."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES
from nmt.errors import Exit, UserError
from nmt.text.lines import open_lines, raw_lines, side_file
from nmt.toy import ensure_text

SPLITS = ("train", "dev")
CHUNK = 5000  # lines that one worker takes at once


class Scan(NamedTuple):
    """The result of one pass over a file; of a compressed one it concerns the text in it."""

    path: Path
    sha256: str
    lines: int


def scan(path: Path, hint: str = "check the path", partner: Scan | None = None) -> Scan:
    """Hash a text file and count its lines.

    Raises UserError: 66 if it is missing, 65 if it is damaged, empty or not parallel to `partner`.
    """
    digest, lines = hashlib.sha256(), 0
    with open_lines(path, hint) as stream:
        for line in stream:
            digest.update(line)
            lines += 1
    if not lines:
        raise UserError(f"{path}: is empty; {hint}", Exit.DATA)
    if partner and lines != partner.lines:
        counts = f"{partner.path}: {partner.lines} lines, {path}: {lines}"
        raise UserError(f"{counts}; the two must be parallel", Exit.DATA)
    return Scan(path, digest.hexdigest(), lines)


class Chunk(NamedTuple):
    """Consecutive lines of parallel files."""

    text: "ParallelText"
    first: int  # number of the first line, from 1
    lines: list[list[bytes]]  # of each file, with their line ends

    def rows(self) -> Iterator[tuple[bytes, ...]]:
        """Yield the lines of all files at once, without line ends and byte order marks."""
        return zip(*(raw_lines(lines, self.first == 1) for lines in self.lines), strict=True)


class ParallelText(NamedTuple):
    """Two parallel files, and the columns of the source, after their scan."""

    split: str
    source: Scan
    target: Scan
    columns: dict[str, Scan]  # by name
    corpus: str = ""  # its name, if there are several
    tag: str = ""  # put before each source
    offset: int = 0  # added to line numbers: corpora before it have the lower ones

    def sizes(self) -> list[int]:
        total = self.source.lines
        return [min(CHUNK, total - before) for before in range(0, total, CHUNK)]

    def chunks(self) -> Iterator[Chunk]:
        """Read the files again; UserError (65), at the end at the latest, if they have changed."""
        files = [self.source, self.target, *self.columns.values()]
        digests = [hashlib.sha256() for _ in files]
        names = ", ".join(str(file.path) for file in files)
        changed = UserError(f"{names}: changed while they were read; start again", Exit.DATA)
        with ExitStack() as stack:
            streams = [iter(stack.enter_context(open_lines(file.path))) for file in files]
            for number, size in enumerate(self.sizes()):
                lines = [list(islice(stream, size)) for stream in streams]
                if any(len(part) != size for part in lines):
                    raise changed
                for digest, part in zip(digests, lines, strict=True):
                    digest.update(b"".join(part))
                yield Chunk(self, number * CHUNK + 1, lines)
        if [digest.hexdigest() for digest in digests] != [file.sha256 for file in files]:
            raise changed


def scan_files(data: Data) -> dict[str, list[ParallelText]]:
    """Scan the training and development files; one text for each corpus.

    With data.dev_lines there is no development text.
    """
    ensure_text(data)
    texts: dict[str, list[ParallelText]] = {split: [] for split in SPLITS}
    languages = data.source_language, data.target_language
    for name, corpus in sorted(data.corpora.items()):
        root = Path(data.root or "", name) if corpus.root is None else Path(corpus.root)
        for split in SPLITS if corpus.dev_source else ("train",):
            keys = [f"{split}_{side}" for side in SIDES]
            files = {
                key: root / (getattr(corpus, key) or f"train.{language}")
                for key, language in zip(keys, languages, strict=True)
            }
            sides = _scan_pair(files, f"set data.corpora.{name}.root, or its {{}}")
            # one more than it has: the last line of a corpus is not next to the first of another
            before = sum(text.source.lines + 1 for text in texts[split])
            text = ParallelText(split, *sides, {}, name, corpus.tag or "", before)
            texts[split].append(text)
    for split in ("train",) if data.dev_lines else SPLITS:
        if not texts[split]:
            files = {f"{split}_{side}": getattr(data, f"{split}_{side}") for side in SIDES}
            instead = data.other_dev if split == "dev" else ""
            source, target = _scan_pair(files, f"set data.root or data.{{}}{instead}")
            columns = {
                name: scan(Path(getattr(files, split)), f"set data.columns.{name}.{split}", source)
                for name, files in data.columns.items()
            }
            texts[split] = [ParallelText(split, source, target, columns)]
    return texts


def _scan_pair(files: dict[str, Path], hint: str) -> tuple[Scan, Scan]:
    """Scan two parallel files, by the keys that name them, which stand for {} in the hint."""
    source, target = (side_file(str(path), hint.format(key)) for key, path in files.items())
    scanned = scan(source)
    return scanned, scan(target, partner=scanned)
