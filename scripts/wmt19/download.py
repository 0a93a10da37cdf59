"""Downloads that can be stopped at any moment, and are used only if their SHA-256 is right.

A file grows as FILE.part and takes its name when its hash has been compared. It is the hash that
decides, so that http is as good as https. Libraries such as pooch begin a file of a gigabyte anew
after each break; going on where a download stopped is the purpose of this module.
"""

import logging
import os
import socket
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError

from tqdm import tqdm

import nmt
from nmt.errors import DISK, Exit, UserError
from nmt.system import atomic
from nmt.system.manifest import sha256_of

log = logging.getLogger("nmt.wmt19")  # of nmt: what servers say cannot move the cursor
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
        """Bytes of its longest version."""
        return max(version.size for version in self.versions)


def is_pinned(path: Path, archive: Archive) -> bool:
    """Whether a file is one of the pinned versions."""
    size = path.stat().st_size
    hashes = [version.sha256 for version in archive.versions if version.size == size]
    return bool(hashes) and sha256_of(path) in hashes


def fetch(archives: list[Archive], folder: Path) -> list[str]:
    """Download the first archive that an address gives, going on where a killed download stopped.

    Returns why each address cannot give it, and nothing once one is there.
    """
    why = list[str]()
    for archive in archives:
        part = folder / f"{archive.file}.part"
        part.touch()
        if part.stat().st_size >= archive.largest and not is_pinned(part, archive):
            os.truncate(part, 0)
        for url in archive.urls:
            if failure := _complete(part, url, archive):
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


def _complete(part: Path, url: str, archive: Archive) -> str:
    """Append what is missing, and compare the hash; why this address cannot give it, or ""."""
    had = part.stat().st_size
    failure = "" if is_pinned(part, archive) else _append_rest(part, url, archive)
    if failure or is_pinned(part, archive):
        return failure
    wrong = sha256_of(part)
    os.truncate(part, 0)
    if not had:
        return f"has another file, of SHA-256 {wrong}"
    log.warning("%s: its pieces do not fit together; from the start", archive.file)
    return _complete(part, url, archive)


def _append_rest(part: Path, url: str, archive: Archive) -> str:
    """Append what is missing, going on after each break; why this address cannot give it, or ""."""
    sizes, failures, ranged = {version.size for version in archive.versions}, 0, True
    units = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    with tqdm(desc=archive.file, total=max(sizes), initial=part.stat().st_size, **units) as bar:
        while True:
            before, tries = part.stat().st_size, TRIES
            try:
                _receive(url, part, sizes, bar, ranged)
                return ""
            except ValueError as error:
                return str(error)
            except HTTPError as error:
                error.close()
                why = f"answers {error.code} {error.reason}"
                ranged = ranged and error.code != BEYOND_END
                if error.code not in RETRIED and error.code < 500:
                    return why
            except (OSError, HTTPException) as error:
                if isinstance(error, OSError) and error.errno in DISK:
                    raise OSError(error.errno, error.strerror, str(part)) from None
                why = str(getattr(error, "reason", error)) or type(error).__name__
                if isinstance(error, URLError) and not before:
                    tries = min(2, tries)  # the network may not be there
            failures = 1 if part.stat().st_size > before else failures + 1
            if failures >= tries:
                return why
            pause = PAUSE * 2 ** (failures - 1)
            log.warning("%s: %s; again in %.3g s", url, why, pause)
            time.sleep(pause)


def _receive(url: str, part: Path, sizes: set[int], bar: "tqdm[Any]", ranged: bool) -> None:
    """Write one answer into a part: what is missing, or all of it; what is beyond it stays.

    Raises OSError for an answer that ends before, ValueError if this address has another file.
    """
    had = part.stat().st_size
    headers = {"User-Agent": f"nmt/{nmt.__version__}", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={had}-"} if had and ranged else {}
    with request.urlopen(request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
        continued = answer.status == 206
        start = count = had if continued else 0
        stated = answer.headers.get("Content-Range" if continued else "Content-Length", "")
        length = stated.rpartition("/")[2]
        total = int(length) if length.isdecimal() else None
        if total not in {None, *sizes}:
            expected = " or ".join(map(str, sorted(sizes)))
            raise ValueError(f"offers {total} bytes, pinned are {expected}")
        bar.update(start - bar.n)
        with part.open("r+b") as file:
            while block := answer.read1(BLOCK):
                file.seek(count)
                if total is None and not block.startswith(file.read(len(block))):
                    raise ValueError(f"gives no size, and differs from {part}")
                count += len(block)
                if count > max(sizes):
                    file.truncate(had)
                    if continued:
                        raise ConnectionError("another part than the missing one")
                    raise ValueError(f"sends more than the pinned {max(sizes)} bytes")
                file.seek(count - len(block))
                file.write(block)
                file.flush()  # what is in no file is lost to a kill
                bar.update(len(block))
    if count not in sizes or count < (total or 0):
        raise ConnectionError(f"it ended after {count} bytes")
    os.truncate(part, count)  # what it had beyond was of another version


def fetch_test_set(known: str, languages: list[str]) -> list[Path]:
    """Both sides of a test set as sacreBLEU downloads it, with an MD5; raises UserError (69)."""
    from portalocker.exceptions import LockException
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    socket.setdefaulttimeout(TIMEOUT)  # sacreBLEU would wait for ever
    pair = "-".join(languages)
    try:
        return [Path(get_source_file(known, pair)), Path(get_reference_files(known, pair)[0])]
    except (SystemExit, OSError, EOFError, HTTPException, LockException, TarError) as error:
        # it exits where an MD5 is wrong, and never repairs what a full disk left
        why, place = f"{type(error).__name__}: {error}", Path(SACREBLEU_DIR) / known
        advice = f"unless another process is downloading it, remove {place} and try again"
        raise UserError(f"sacreBLEU's {known}: {why}; {advice}", Exit.UNAVAILABLE) from None
