"""Downloads that can be stopped at any moment, and are used only if their SHA-256 is right.

A file grows as FILE.part and takes its name when its hash has been compared. Nothing is verified
by trust in a server: certificates are checked where there are some, but it is the hash that
decides, so that mirrors and http are as good as anything.

pooch 1.9 compares hashes, too, but begins a file of a gigabyte anew after each break, knows one
address, one hash and no size for it, and brings requests; a client such as requests or urllib3
retries requests, not the rest of an answer that broke off. Going on where a download stopped is
what this module is for, and needs no more of a client than urllib has.
"""

import hashlib
import http.client
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import nmt
from nmt import atomic
from nmt.errors import Exit, UserError
from nmt.manifest import sha256_of
from nmt.recipes.lock import Archive, FileVersion

log = logging.getLogger(__name__)
BLOCK = 1 << 18  # bytes read at once
AGAIN = (408, 425, 429)  # besides 5xx: answers that may be another one in a while


class Patience(NamedTuple):
    """How often and how long to try."""

    tries: int = 6  # in a row without a new byte
    pause: float = 1.0  # seconds before the second try; doubled each time
    timeout: float = 60.0  # seconds of silence that end a try


class Fetched(NamedTuple):
    """A file that is here and right."""

    path: Path
    version: FileVersion
    origin: str  # an address, or how it came


class UnavailableError(Exception):
    """None of the addresses gives the file; `why` has a line for each."""

    def __init__(self, why: list[str]) -> None:
        super().__init__("; ".join(why))
        self.why = why


class _AgainError(Exception):
    """This try failed; another may not."""


class _UnreachableError(_AgainError):
    """Nobody answered at all."""


class _GoneError(Exception):
    """This address will not give the file."""


class Bar(Protocol):
    """What is asked of a progress bar; tqdm is one."""

    n: float

    def update(self, n: float) -> object:
        """Tell of n more bytes."""

    def close(self) -> None:
        """Come to an end."""


def matching(path: Path, versions: Sequence[FileVersion]) -> FileVersion | None:
    """The version that a file is, by size and SHA-256; None if it is none of them."""
    size = path.stat().st_size
    if all(size != version.size for version in versions):
        return None
    return _version(versions, size, sha256_of(path))


def here(archive: Archive, folder: Path, local: Sequence[Path]) -> Fetched | None:
    """A file that was downloaded before, or lies in a folder of files fetched by hand.

    Raises UserError (65) if it is another file; in `folder` it is renamed FILE.bad first.
    """
    for place in (folder, *local):
        path = place / archive.file
        if not path.is_file():
            continue
        if version := matching(path, archive.versions):
            return Fetched(path, version, "downloaded before" if place == folder else "local file")
        digest = path.stat().st_size, sha256_of(path)
        if place == folder:
            raise _bad(path, path, archive, digest, "downloaded before")
        raise UserError(f"{path}: {_differs(archive, digest)}; fetch it again", Exit.DATA)
    return None


def fetch(
    archive: Archive,
    folder: Path,
    mirror: str | None,
    patience: Patience,
    bar: Callable[[str, int, int], Bar],
) -> Fetched:
    """Download a file, going on where a killed download stopped.

    `bar(name, total, done)` makes a progress bar. Raises UnavailableError if no address gives
    the file, UserError (65) if one gives another file, which is kept as FILE.bad.
    """
    urls = [*([f"{mirror.rstrip('/')}/{archive.file}"] if mirror else []), *archive.urls]
    part = _Part(folder / f"{archive.file}.part")
    try:
        if part.version(archive):  # killed between the last byte and the name
            return _named(part, archive, folder, "downloaded before")
        if part.size >= max(version.size for version in archive.versions):
            part.restart()
        why: list[str] = []
        for url in urls:
            try:
                _patiently(url, part, archive, patience, bar)
                if part.version(archive) is None and part.mixed:
                    log.warning("%s: its pieces do not fit together; from the start", archive.file)
                    part.restart()
                    _patiently(url, part, archive, patience, bar)
            except _GoneError as error:
                why.append(f"{url}: {error}")
                log.warning("%s: %s", url, error)
                continue
            return _named(part, archive, folder, url)
        raise UnavailableError(why)
    finally:
        part.close()
        if not part.size:
            part.path.unlink(missing_ok=True)


def _named(part: "_Part", archive: Archive, folder: Path, origin: str) -> Fetched:
    """Give a whole file its name, FILE or FILE.bad; UserError (65) for the latter."""
    part.finish()
    final = folder / archive.file
    version = part.version(archive)
    if version is None:
        raise _bad(part.path, final, archive, (part.size, part.hash.hexdigest()), origin)
    os.replace(part.path, final)  # noqa: PTH105
    atomic.sync(folder)
    return Fetched(final, version, origin)


class _Part:
    """A file that grows, with the hash of what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hash = hashlib.sha256()
        self.size = 0
        self.mixed = False  # holds bytes of several answers, perhaps of several files
        self.grown = False  # somebody has sent something
        self._file: BinaryIO = path.open("a+b")
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            self.hash.update(block)
            self.size += len(block)

    def restart(self) -> None:
        self._file.truncate(0)
        self.hash, self.size, self.mixed = hashlib.sha256(), 0, False

    def append(self, block: bytes) -> None:
        self._file.write(block)
        self._file.flush()  # what is in no file is lost to a kill
        self.hash.update(block)
        self.size += len(block)
        self.grown = True

    def version(self, archive: Archive) -> FileVersion | None:
        return _version(archive.versions, self.size, self.hash.hexdigest())

    def finish(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _version(versions: Sequence[FileVersion], size: int, sha256: str) -> FileVersion | None:
    return next((v for v in versions if (v.size, v.sha256) == (size, sha256)), None)


def _patiently(
    url: str, part: _Part, archive: Archive, patience: Patience, bar: Callable[..., Bar]
) -> None:
    """Try until the file is whole; raises _GoneError when there is no more use in it."""
    failures = 0
    sizes = {version.size for version in archive.versions}
    progress = bar(archive.file, max(sizes), part.size)
    try:
        while True:
            before = part.size
            try:
                _once(url, part, sizes, patience.timeout, progress)
                return
            except _AgainError as error:
                failures = 1 if part.size > before else failures + 1
                unreachable = isinstance(error, _UnreachableError) and not part.grown
                if failures >= (min(2, patience.tries) if unreachable else patience.tries):
                    raise _GoneError(str(error)) from None
                pause = patience.pause * 2 ** (failures - 1)
                log.warning("%s: %s; again in %.3g s", url, error, pause)
                time.sleep(pause)
    finally:
        progress.close()


def _once(url: str, part: _Part, sizes: set[int], timeout: float, bar: Bar) -> None:
    """One request, for what is missing or, if the server cannot do that, for all."""
    headers = {"User-Agent": f"nmt/{nmt.__version__}", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
    with _opened(request.Request(url, headers=headers), timeout, part) as answer:
        continued, total = _understood(answer, part)
        if total is not None and total not in sizes:
            expected = " or ".join(map(str, sorted(sizes)))
            raise _GoneError(f"offers {total} bytes, the lock file says {expected}")
        if continued:
            part.mixed = True
        else:
            part.restart()
        bar.update(part.size - bar.n)
        for block in _blocks(answer):
            part.append(block)
            bar.update(len(block))
            if part.size > max(sizes):
                part.restart()
                raise _GoneError(f"sends more than the {max(sizes)} bytes of the lock file")
    if part.size not in sizes or (total is not None and part.size < total):
        raise _AgainError(f"ended after {part.size} bytes")


def _opened(query: request.Request, timeout: float, part: _Part) -> Any:
    """The server's answer to a request; exceptions say whether to ask again."""
    try:
        return _opener().open(query, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.restart()
        elif error.code not in AGAIN and error.code < 500:
            raise _GoneError(f"answers {error.code} {error.reason}") from None
        raise _AgainError(f"answers {error.code} {error.reason}") from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _AgainError(f"no answer in {timeout:g} s") from None
        raise _UnreachableError(str(error.reason)) from None
    except TimeoutError:
        raise _AgainError(f"no answer in {timeout:g} s") from None
    except (http.client.HTTPException, OSError) as error:
        raise _AgainError(f"the answer breaks off: {error or type(error).__name__}") from None


class _Redirect(request.HTTPRedirectHandler):
    """Follows redirections to http and https alone."""

    def redirect_request(
        self, req: request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise HTTPError(req.full_url, code, f"leads to {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> request.OpenerDirector:
    """Opens http and https, and nothing else."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.UnknownHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        _Redirect,
        request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _understood(answer: Any, part: _Part) -> tuple[bool, int | None]:
    """Whether an answer goes on where the part ends, and the whole file's size if it is told."""
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT and part.size:
        content_range = answer.headers.get("Content-Range", "")
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
        if not span or int(span[1]) != part.size:
            part.restart()
            raise _AgainError("answers with another part than was asked for")
        return True, int(span[2]) if span[2] != "*" else None
    if answer.status != http.HTTPStatus.OK:
        raise _GoneError(f"answers {answer.status}")
    length = answer.headers.get("Content-Length", "")
    return False, int(length) if length.isdecimal() else None


def _blocks(answer: Any) -> Iterator[bytes]:
    """The bytes of an answer as they come; a broken answer is an _AgainError."""
    while True:
        try:
            block = answer.read1(BLOCK)
        except TimeoutError:
            raise _AgainError("the server fell silent") from None
        except (http.client.HTTPException, OSError) as error:
            raise _AgainError(f"the answer breaks off: {error or type(error).__name__}") from None
        if not block:
            return
        yield block


def _differs(archive: Archive, digest: tuple[int, str]) -> str:
    size, sha256 = digest
    pinned = " or ".join(f"{v.sha256} ({v.size} bytes)" for v in archive.versions)
    return f"SHA-256 is {sha256} ({size} bytes), the lock file says {pinned}"


def _bad(
    path: Path, final: Path, archive: Archive, digest: tuple[int, str], origin: str
) -> UserError:
    """Set a wrong file aside as FILE.bad, and say so."""
    bad = final.with_name(f"{final.name}.bad")
    os.replace(path, bad)  # noqa: PTH105
    atomic.sync(final.parent)
    return UserError(
        f"{bad}: from {origin}: {_differs(archive, digest)}; "
        "the same command fetches it again, --mirror from elsewhere",
        Exit.DATA,
    )
