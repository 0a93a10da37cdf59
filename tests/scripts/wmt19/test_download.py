"""Downloads from a server in every mood: the right bytes under the right name, or an error."""

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

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


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> "list[tqdm[Any]]":
    """The progress bars, which say nothing."""
    made = []

    def bar(**settings: Any) -> "tqdm[Any]":
        made.append(tqdm(**settings | {"disable": False, "file": io.StringIO()}))
        return made[-1]

    monkeypatch.setattr(archives, "tqdm", bar)
    return made


def version(data: bytes) -> FileVersion:
    return FileVersion(len(data), hashlib.sha256(data).hexdigest())


def archive(*urls: str, versions: tuple[FileVersion, ...] = (version(DATA),)) -> Archive:
    return Archive(FILE, [f"{url}/{FILE}" for url in urls], list(versions))


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(*moods: str, data: bytes = DATA, **more: float) -> Server:
            server = Server({FILE: data}, {FILE: moods} if moods else None, **more)
            return stack.enter_context(serving(server))

        yield start


def get(asked: Archive, folder: Path) -> bytes:
    assert fetch([asked], folder) == []
    assert [p.name for p in folder.iterdir()] == [FILE]
    return (folder / FILE).read_bytes()


@pytest.mark.parametrize(
    "moods",
    [
        ("right",),
        ("slow",),
        ("redirect",),
        ("500", "right"),
        ("503", "429", "right"),
        ("short", "right"),
        ("short", "short", "short", "short", "right"),  # each brings something: no end of patience
        ("short", "no-range"),
        ("silent", "right"),
        ("short", "500", "no-range"),
    ],
    ids="-".join,
)
def test_the_right_bytes_arrive(
    moods: tuple[str, ...], serve: Serve, tmp_path: Path, bars: "list[tqdm[Any]]"
) -> None:
    server = serve(*moods, pause=0.002)
    assert get(archive(server.url), tmp_path) == DATA
    (bar,) = bars
    assert bar.n == bar.total == len(DATA)


def test_a_short_answer_is_continued_where_it_stopped(serve: Serve, tmp_path: Path) -> None:
    server = serve("short", "right")
    get(archive(server.url), tmp_path)
    assert [asked for _, asked in server.seen] == [None, f"bytes={len(DATA) // 2}-"]


def test_a_part_of_a_killed_download_is_continued(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(DATA[:1000])
    server = serve()
    assert get(archive(server.url), tmp_path) == DATA
    assert [asked for _, asked in server.seen] == ["bytes=1000-"]


def test_a_part_of_something_else_is_thrown_away(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(b"x" * 1000)
    server = serve()
    assert get(archive(server.url), tmp_path) == DATA
    assert [asked for _, asked in server.seen] == ["bytes=1000-", None]


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


def test_another_size_is_refused_before_it_is_fetched(serve: Serve, tmp_path: Path) -> None:
    bad, good = serve(data=b"<html>moved</html>"), serve()
    (why,) = fetch([archive(bad.url)], tmp_path)
    assert "offers 18 bytes, pinned are 1024000" in why
    assert get(archive(bad.url, good.url), tmp_path) == DATA


def test_a_server_that_gives_no_size_is_passed_over(serve: Serve, tmp_path: Path) -> None:
    server, good = serve("unsized", data=DATA + b"more"), serve()
    (why,) = fetch([archive(server.url)], tmp_path)
    assert "pinned are 1024000" in why
    assert not list(tmp_path.iterdir())
    assert get(archive(server.url, good.url), tmp_path) == DATA


@pytest.mark.parametrize("mood", ["404", "403", "410", "file"])
def test_the_next_address_where_one_is_gone(mood: str, serve: Serve, tmp_path: Path) -> None:
    gone, good = serve(mood), serve()
    assert get(archive(gone.url, good.url), tmp_path) == DATA
    assert len(gone.seen) == 1  # such an answer is final


def test_the_next_address_where_one_stays_broken(serve: Serve, tmp_path: Path) -> None:
    broken, good = serve("500"), serve()
    assert get(archive(broken.url, good.url), tmp_path) == DATA
    assert len(broken.seen) == TRIES


def test_two_mirrors_share_the_work(serve: Serve, tmp_path: Path) -> None:
    first, second = serve("short", "404"), serve()
    get(archive(first.url, second.url), tmp_path)
    assert second.seen == [(f"/{FILE}", f"bytes={len(DATA) // 2}-")]


@pytest.mark.parametrize(
    ("mood", "data", "requests"),
    [
        ("right", DATA[:950_000], 1),
        ("right", DATA + b"more", 1),
        ("right", OTHER, 2),  # 416, then without Range
        ("unsized", b"<html>log in</html>", 1),
        ("empty", DATA, TRIES),
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


def test_a_part_of_a_longer_version_is_no_part_of_the_shorter(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(DATA[:900_000])
    server = serve(data=OTHER)
    assert get(archive(server.url, versions=(version(DATA), version(OTHER))), tmp_path) == OTHER
    assert [asked for _, asked in server.seen] == ["bytes=900000-", None]


@pytest.mark.parametrize("broken", ["http://[::1", "http://a..b"])
def test_an_address_that_is_broken(broken: str, serve: Serve, tmp_path: Path) -> None:
    assert get(archive(broken, serve().url), tmp_path) == DATA


def test_nobody_answers(tmp_path: Path) -> None:
    urls = ("http://127.0.0.1:9", "https://nobody.invalid")
    why = fetch([archive(*urls)], tmp_path)
    assert [line.split(": ")[0] for line in why] == [f"{url}/{FILE}" for url in urls]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_and_the_part_kept(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    with files_up_to(500_000), pytest.raises(OSError, match=rf"File too large.*{FILE}\.part"):
        fetch([archive(server.url)], tmp_path)
    assert get(archive(server.url), tmp_path) == DATA
    assert server.seen[1:] == [(f"/{FILE}", "bytes=500000-")]


@pytest.mark.parametrize("data", [DATA, OTHER])
@pytest.mark.parametrize("mood", ["right", "short"])
def test_either_version_is_right(data: bytes, mood: str, serve: Serve, tmp_path: Path) -> None:
    server = serve(mood, "right", data=data)
    assert get(archive(server.url, versions=(version(DATA), version(OTHER))), tmp_path) == data
