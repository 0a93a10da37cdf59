"""A miniature recipe in a directory of its own, with its server."""

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nmt.system import atomic
from tests.scripts.wmt19 import miniature
from tests.scripts.wmt19.server import Server, serving

TEXT = ("train.*", "dev.*", "corpus.json", "test/**/*")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@contextmanager
def files_up_to(count: int) -> Iterator[None]:
    """Let every write beyond so many bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Mini:
    """A miniature recipe, its server, and what a run of it says."""

    def __init__(self, name: str, folder: Path, server: Server) -> None:
        self.name, self.folder, self.server = name, folder, server

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def words(self, *more: str) -> list[str]:
        return [f"{self.name}.toml", "--local", "sets", "--root", "root", *more]

    def files(self) -> dict[str, bytes]:
        found = {p for pattern in TEXT for p in self.root.glob(pattern) if p.is_file()}
        return {p.relative_to(self.root).as_posix(): p.read_bytes() for p in sorted(found)}

    def strays(self) -> list[str]:
        every = list(self.root.rglob("*"))
        return [p.name for p in every if p.name.endswith(".part") or atomic.owner_of(p)]


Make = Callable[..., Mini]


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(name: str = "deen", **more: object) -> Mini:
            server = stack.enter_context(serving(Server({}, **more)))  # type: ignore[arg-type]
            server.files = miniature.make(name, tmp_path, server.url)
            monkeypatch.chdir(tmp_path)
            return Mini(name, tmp_path, server)

        yield make
    socket.setdefaulttimeout(None)
