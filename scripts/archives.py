"""Archives pinned by SHA-256: downloads that can be stopped at any moment, and the texts in them.

A file grows as FILE.part and takes its name when its hash has been compared. It is the hash that
decides, so that http is as good as https. Libraries such as pooch begin a file of a gigabyte anew
after each break; this goes on where a download stopped. Nothing is ever extracted by a name that
an archive holds: the named members alone are streamed into files of our own naming.
"""

import gzip
import logging
import os
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib import request
from urllib.error import URLError

from tqdm import tqdm

import nmt
from nmt.errors import DISK, Exit, UserError
from nmt.system import atomic
from nmt.system.manifest import sha256_of
from nmt.text.lines import BOM

log = logging.getLogger("nmt.archives")  # of nmt: what servers say cannot move the cursor
BLOCK = 1 << 18  # bytes read at once
RETRIED = (408, 416, 425, 429)  # and 5xx: answers that may change in a while
BEYOND_END = 416  # the part has more bytes than the server's file
TRIES = 6  # in a row without a new byte
PAUSE = 1.0  # seconds before the second try; doubled each time
TIMEOUT = 60.0  # seconds of silence that end a try


@dataclass(frozen=True)
class FileVersion:
    """One content that a file may have."""

    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class Archive:
    """A file to download; several archives of a corpus hold the same text."""

    file: str  # .tsv.gz, or .tar.gz, .tgz, .zip
    urls: list[str]  # in the order to be tried
    versions: list[FileVersion]  # any of them is right

    @property
    def largest(self) -> int:
        return max(version.size for version in self.versions)

    def is_at(self, path: Path) -> bool:
        size = path.stat().st_size
        hashes = [version.sha256 for version in self.versions if version.size == size]
        return bool(hashes) and sha256_of(path) in hashes


def fetch(archives: list[Archive], folder: Path) -> list[str]:
    """Download the first archive that an address gives, going on where a killed download stopped.

    Returns why each address cannot give it, and nothing once one is there.
    """
    why: list[str] = []
    for archive in archives:
        part = folder / f"{archive.file}.part"
        part.touch()
        for url in archive.urls:
            if failure := complete(part, url, archive):
                why.append(f"{url}: {failure}")
                log.warning("%s", why[-1])
                continue
            log.info("  %s", url)
            atomic.move(part, folder / archive.file)
            for other in archives:  # which may have broken off before
                (folder / f"{other.file}.part").unlink(missing_ok=True)
            return []
        if not part.stat().st_size:
            part.unlink()
    return why


def complete(part: Path, url: str, archive: Archive) -> str:
    """Append what is missing, going on after each break; why this address cannot give it, or ""."""
    had = part.stat().st_size  # that may come from elsewhere
    failures, ranged = 0, True
    units = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    with tqdm(desc=archive.file, total=archive.largest, initial=had, **units) as bar:
        while not archive.is_at(part):
            before = part.stat().st_size
            try:
                receive(url, part, archive, ranged, bar)
            except ValueError as error:
                return str(error)
            except (OSError, HTTPException) as error:
                if isinstance(error, OSError) and error.errno in DISK:
                    raise OSError(error.errno, error.strerror, str(part)) from None
                code = getattr(error, "code", None)  # of an HTTPError
                why = str(getattr(error, "reason", error)) or type(error).__name__
                why = f"answers {code} {why}" if code else why
                no_network = isinstance(error, URLError) and not (code or before)
                failures = 1 if part.stat().st_size > before else failures + 1
                if failures >= (min(2, TRIES) if no_network else TRIES) or is_final(code):
                    return why
                ranged = ranged and code != BEYOND_END
                pause = PAUSE * 2 ** (failures - 1)
                log.warning("%s: %s; again in %.3g s", url, why, pause)
                time.sleep(pause)
            else:
                if archive.is_at(part):
                    break
                wrong = sha256_of(part)
                os.truncate(part, 0)
                if not had:
                    return f"has another file, of SHA-256 {wrong}"
                log.warning("%s: its pieces do not fit together; from the start", archive.file)
                had = 0
    return ""


def is_final(code: int | None) -> bool:
    """Whether an HTTP status will be the same in a while."""
    return code is not None and code < 500 and code not in RETRIED


def receive(url: str, part: Path, archive: Archive, ranged: bool, bar: "tqdm[Any]") -> None:
    """Write one answer into a part: what is missing, or all of it; what is beyond it stays.

    Raises OSError for an answer that ends before, ValueError if this address has another file.
    """
    had = part.stat().st_size
    headers = {"User-Agent": f"nmt/{nmt.__version__}", "Accept-Encoding": "identity"}
    if had and ranged:
        headers["Range"] = f"bytes={had}-"
    with request.urlopen(request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
        continued = answer.status == 206
        stated = answer.headers.get("Content-Range" if continued else "Content-Length", "")
        offered = stated.rpartition("/")[2]
        expected = [str(version.size) for version in archive.versions]
        if offered not in expected:
            pinned = " or ".join(expected)
            raise ValueError(f"offers {offered or 'no number of'} bytes, pinned are {pinned}")
        size, count = int(offered), had if continued else 0
        bar.update(count - bar.n)
        with part.open("r+b") as file:
            file.seek(count)
            while count < size and (block := answer.read1(min(BLOCK, size - count))):
                file.write(block)
                file.flush()  # what is in no file is lost to a kill
                count += len(block)
                bar.update(len(block))
    if count < size:
        raise ConnectionError(f"it ended after {count} bytes")
    os.truncate(part, size)  # what it had beyond was of another version


def extract_members(path: Path, files: dict[Path, list[str]]) -> int:
    """Write one member of a tar or zip archive to each file, and return the lines of one side.

    `files`: source and target in turn, each with the names that its member may have. A line ends
    at LF; the last one gets its LF, and a byte order mark at the start goes. Raises UserError (65)
    for a missing member, and for a pair that differs in its number of lines.
    """
    lines: dict[Path, int] = {}
    for name, text in open_members(path):
        target = next((file for file, names in files.items() if name in names), None)
        if target and target not in lines:
            lines[target] = copy_lines(text, target)
        if len(lines) == len(files):
            break
    for file, names in files.items():
        if file not in lines:
            raise UserError(f"{path}: has no member {' or '.join(names)}", Exit.DATA)
    in_order = list(files)
    for source, target in zip(in_order[::2], in_order[1::2], strict=True):
        if lines[source] != lines[target]:
            raise UserError(
                f"{path}: {files[source][0]} has {lines[source]} lines, {files[target][0]} has "
                f"{lines[target]}; the two must be parallel",
                Exit.DATA,
            )
    return sum(lines[source] for source in in_order[::2])


def open_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and text of each file in an archive, to be read before the next one is requested."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, archive.open(info)
        return
    with tarfile.open(path, "r|gz") as stream:
        for entry in stream:
            if text := stream.extractfile(entry) if entry.isreg() else None:  # no link
                yield entry.name.removeprefix("./"), text


def copy_lines(member: IO[bytes], path: Path) -> int:
    """Write the text of a member to a file, and return its lines."""
    lines = 0
    with member, path.open("wb") as file:
        for line in member:
            file.write((line if lines else line.removeprefix(BOM)).removesuffix(b"\n") + b"\n")
            lines += 1
    return lines


def extract_columns(path: Path, first: Path, second: Path) -> tuple[int, int]:
    """Write the first two columns of a compressed TSV to files; more columns may follow.

    Rows with a blank side are borders of documents; they are dropped. Returns how many rows were
    kept and dropped.
    """
    kept = dropped = 0
    with gzip.open(path) as rows, first.open("wb") as firsts, second.open("wb") as seconds:
        for number, row in enumerate(rows):
            cells = (row if number else row.removeprefix(BOM)).rstrip(b"\r\n").split(b"\t")
            if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
                dropped += 1
                continue
            firsts.write(cells[0] + b"\n")
            seconds.write(cells[1] + b"\n")
            kept += 1
    return kept, dropped
