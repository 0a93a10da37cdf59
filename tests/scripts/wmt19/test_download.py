"""Downloads from a server in every mood: the right bytes under the right name, or an error."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts import archives
from scripts.archives import Archive, FileVersion, fetch
from tests.scripts.wmt19.conftest import files_up_to
from tests.scripts.wmt19.server import Server, serving

DATA = bytes(range(256)) * 4000  # 1 MB
OTHER = DATA[::-1][: len(DATA) // 2]
FILE = "text.zip"
TRIES = 3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TRIES", TRIES), ("PAUSE", 0.01), ("TIMEOUT", 0.5)):
        monkeypatch.setattr(archives, name, value)


def version(data: bytes) -> FileVersion:
    return FileVersion(len(data), hashlib.sha256(data).hexdigest())


def archive(*urls: str, versions: tuple[FileVersion, ...] = (version(DATA),)) -> Archive:
    return Archive(FILE, [f"{url}/{FILE}" for url in urls], list(versions))


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(*moods: str, data: bytes = DATA) -> Server:
            server = Server({FILE: data}, {FILE: moods} if moods else None)
            return stack.enter_context(serving(server))

        yield start


def get(requested: Archive, folder: Path) -> bytes:
    assert fetch([requested], folder) == []
    assert [p.name for p in folder.iterdir()] == [FILE]
    return (folder / FILE).read_bytes()


@pytest.mark.parametrize(
    "moods",
    [
        ("redirect",),
        ("503", "429", "right"),
        ("short", "short", "short", "short", "right"),  # each brings something: no end of patience
        ("silent", "right"),
        ("short", "500", "no-range"),
    ],
    ids="-".join,
)
def test_the_right_bytes_arrive(moods: tuple[str, ...], serve: Serve, tmp_path: Path) -> None:
    assert get(archive(serve(*moods).url), tmp_path) == DATA


def test_a_short_answer_is_continued_where_it_stopped(serve: Serve, tmp_path: Path) -> None:
    server = serve("short", "right")
    get(archive(server.url), tmp_path)
    assert [requested for _, requested in server.seen] == [None, f"bytes={len(DATA) // 2}-"]


def test_a_part_of_a_killed_download_is_continued(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(DATA[:1000])
    server = serve()
    assert get(archive(server.url), tmp_path) == DATA
    assert [requested for _, requested in server.seen] == ["bytes=1000-"]


@pytest.mark.parametrize("junk", [DATA, DATA + b"more", b"x" * len(DATA)])
def test_a_whole_part_is_named_or_thrown_away(junk: bytes, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(junk)
    server = serve()
    assert get(archive(server.url), tmp_path) == DATA
    assert bool(server.seen) == (junk != DATA)


def test_a_wrong_file_is_not_taken(serve: Serve, tmp_path: Path) -> None:
    bad, good = serve("wrong"), serve()
    (why,) = fetch([archive(bad.url)], tmp_path)
    assert bad.url in why and version(bytes(b ^ 1 for b in DATA)).sha256 in why
    assert not list(tmp_path.iterdir())
    assert get(archive(bad.url, good.url), tmp_path) == DATA  # the next address has it


@pytest.mark.parametrize("mood", ["404", "file"])
def test_the_next_address_where_one_is_gone(mood: str, serve: Serve, tmp_path: Path) -> None:
    gone, good = serve(mood), serve()
    assert get(archive(gone.url, good.url), tmp_path) == DATA
    assert len(gone.seen) == 1  # such an answer is final


@pytest.mark.parametrize(
    ("mood", "data", "requests"),
    [
        ("right", DATA[:950_000], 1),
        ("right", OTHER, 2),  # 416, then without Range
        ("unsized", b"<html>log in</html>", 1),
        ("cut", DATA, TRIES),
    ],
)
def test_a_changed_mirror_leaves_the_part_as_it_is(
    mood: str, data: bytes, requests: int, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(DATA[:900_000])
    changed, good = serve(mood, data=data), serve()
    assert get(archive(changed.url, good.url), tmp_path) == DATA
    assert good.seen == [(f"/{FILE}", "bytes=900000-")]
    assert len(changed.seen) == requests


def test_a_full_disk_is_named_and_the_part_kept(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    with files_up_to(500_000), pytest.raises(OSError, match=rf"File too large.*{FILE}\.part"):
        fetch([archive(server.url)], tmp_path)
    assert get(archive(server.url), tmp_path) == DATA
    assert server.seen[1:] == [(f"/{FILE}", "bytes=500000-")]
