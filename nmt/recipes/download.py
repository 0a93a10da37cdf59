"""Downloads that can be stopped at any moment, and are used only if their SHA-256 is right.

A file grows as FILE.part and takes its name when its hash has been compared. Certificates are
checked where there are some, but it is the hash that decides, so that mirrors and http are as good
as anything. Libraries such as pooch begin a file of a gigabyte anew after each break; going on
where a download stopped is the purpose of this module, and needs no more of a client than urllib.
"""

import logging
import os
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError

from tqdm import tqdm

import nmt
from nmt.errors import DISK, Exit, UserError
from nmt.recipes.disk import size
from nmt.recipes.lock import Archive, FileVersion
from nmt.system import atomic
from nmt.system.manifest import sha256_of

log = logging.getLogger(__name__)
BLOCK = 1 << 18  # bytes read at once
RETRIED = (408, 416, 425, 429)  # and 5xx: answers that may change in a while
BEYOND_END = 416  # the part has more bytes than the server's file
TRIES = 6  # in a row without a new byte
PAUSE = 1.0  # seconds before the second try; doubled each time
TIMEOUT = 60.0  # seconds of silence that end a try


class UnavailableError(Exception):
    """None of the addresses gives the file; `why` has a line for each."""

    def __init__(self, why: list[str]) -> None:
        super().__init__("; ".join(why))
        self.why = why


def local_file(archive: Archive, folder: Path, local: Sequence[Path]) -> Path | None:
    """A file that was downloaded before, or is in a folder of files fetched by hand.

    Raises UserError (65) if it is another file; in `folder` it is renamed FILE.bad first.
    """
    for place in (folder, *local):
        path = place / archive.file
        if path.is_file() and not _matches(path, archive):
            if place == folder:
                raise _set_aside(path, path, archive, "downloaded before")
            raise UserError(f"{path}: {_difference(path, archive)}; fetch it again", Exit.DATA)
        if path.is_file():
            log.info("  %s, %s", path, size(path.stat().st_size))
            return path
    return None


def fetch(archive: Archive, folder: Path, mirror: str | None) -> Path:
    """Download a file, going on where a killed download stopped.

    Raises UnavailableError if no address gives the file, UserError (65) if one gives another
    file, which is kept as FILE.bad.
    """
    urls = [*([f"{mirror.rstrip('/')}/{archive.file}"] if mirror else []), *archive.urls]
    final, part = folder / archive.file, folder / f"{archive.file}.part"
    part.touch()
    if not _matches(part, archive):  # else it was killed between the last byte and the name
        if part.stat().st_size >= max(version.size for version in archive.versions):
            os.truncate(part, 0)
        why = list[str]()
        for url in urls:
            resumed = part.stat().st_size
            failure = _append_rest(part, url, archive)
            if resumed and not failure and not _matches(part, archive):
                log.warning("%s: its pieces do not fit together; from the start", archive.file)
                os.truncate(part, 0)
                failure = _append_rest(part, url, archive)
            if not failure:
                break
            why.append(f"{url}: {failure}")
            log.warning("%s", why[-1])
        else:
            if not part.stat().st_size:
                part.unlink()
            raise UnavailableError(why)
        if not _matches(part, archive):
            raise _set_aside(part, final, archive, url)
        log.info("  %s, %s", url, size(part.stat().st_size))
    atomic.move(part, final)
    return final


def _matches(path: Path, archive: Archive) -> bool:
    """Whether a file is one of the pinned versions."""
    count = path.stat().st_size
    if all(count != version.size for version in archive.versions):
        return False
    return FileVersion(count, sha256_of(path)) in archive.versions


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
            except URLError as error:
                why = str(error.reason)
                tries = tries if before else min(2, tries)  # the network may not be there
            except TimeoutError:
                why = f"no answer in {TIMEOUT:g} s"
            except (OSError, HTTPException) as error:
                if isinstance(error, OSError) and error.errno in DISK:
                    raise
                why = f"the answer breaks off: {error or type(error).__name__}"
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
    query = request.Request(url, headers=headers)
    with request.urlopen(query, timeout=TIMEOUT) as answer:
        continued = answer.status == 206
        start = count = had if continued else 0
        stated = answer.headers.get("Content-Range" if continued else "Content-Length", "")
        length = stated.rpartition("/")[2]
        total = int(length) if length.isdecimal() else None
        if total not in {None, *sizes}:
            expected = " or ".join(map(str, sorted(sizes)))
            raise ValueError(f"offers {total} bytes, the lock file says {expected}")
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
                    raise ValueError(f"sends more than the {max(sizes)} bytes of the lock file")
                file.seek(count - len(block))
                file.write(block)
                file.flush()  # what is in no file is lost to a kill
                bar.update(len(block))
    if count not in sizes or count < (total or 0):
        raise ConnectionError(f"it ended after {count} bytes")
    os.truncate(part, count)  # what it had beyond was of another version


def _difference(path: Path, archive: Archive) -> str:
    pinned = " or ".join(f"{v.sha256} ({v.size} bytes)" for v in archive.versions)
    return (
        f"SHA-256 is {sha256_of(path)} ({path.stat().st_size} bytes), the lock file says {pinned}"
    )


def _set_aside(path: Path, final: Path, archive: Archive, origin: str) -> UserError:
    """Rename a wrong file FILE.bad; returns the error (65)."""
    bad = final.with_name(f"{final.name}.bad")
    atomic.move(path, bad)
    return UserError(
        f"{bad}: from {origin}: {_difference(bad, archive)}; "
        "the same command fetches it again, --mirror from elsewhere",
        Exit.DATA,
    )
