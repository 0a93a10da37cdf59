"""Lock files: what a recipe downloads, pinned by size and SHA-256, and what is extracted from it.

A recipe is one TOML file in the directory of this module; the classes below are its schema.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import Exit, UserError

FORMAT = 4  # of lock files


class FileVersion(NamedTuple):
    """One content that a file may have."""

    size: int  # bytes
    sha256: str


class Archive(NamedTuple):
    """A file to download; several archives of a corpus hold the same text."""

    file: str  # .tsv.gz, or .tar.gz, .tgz, .zip
    urls: list[str]  # in the order to be tried
    versions: list[FileVersion]  # any of them is right


class PinnedCorpus(NamedTuple):
    """A parallel text: where it comes from, and which members are its sides."""

    id: str
    about: str
    archives: list[Archive]  # the first available is used
    text: int  # rough bytes of both sides together, for the disk that is needed
    lines: int | None = None  # as a public source states them
    columns: Sequence[str] = ()  # of a .tsv.gz: the languages of its first columns
    pairs: Sequence[dict[str, list[str]]] = ()  # of others: language -> the names it may have


class TestSet(NamedTuple):
    """A test or development set of sacreBLEU."""

    sacrebleu: str
    lines: int | None = None


class Paper(NamedTuple):
    """The paper's figures on its data."""

    lines: int
    over_100: float  # percent of the pairs with a side of more pieces
    note: str
    from_76_to_100: float | None = None  # percent whose longer side has 76 to 100


class Lock(NamedTuple):
    """A recipe."""

    format: int
    name: str
    title: str
    source: str
    target: str
    scale: str  # of conf/scale
    tables: list[str]  # of conf/experiment: those that score the test sets of this pair
    runs: list[str]  # of conf/run: the paper's with absolute and with relative positions
    paper: Paper
    corpora: list[PinnedCorpus]
    sets: dict[str, TestSet]  # by the name of their files
    dev: list[str]  # sets of the development text, in this order
    all: Sequence[str] = ()  # sets of newstest_all, in this order; none: it is not built

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def path_of(name: str) -> Path:
    """The path of a recipe's lock file."""
    return Path(__file__).with_name(f"{name}.toml")


def names() -> list[str]:
    """The recipes that come with nmt."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


def read(path: Path) -> Lock:
    """Read a lock file; UserError: 66 if it is missing, 65 if it is none of this format."""
    try:
        plain = tomllib.loads(path.read_bytes().decode())
        if plain.get("format") != FORMAT:
            raise ValueError(f"format: {plain.get('format')}; this version of nmt reads {FORMAT}")
        return _lock(**plain)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; check the path", Exit.NO_INPUT) from None
    except (ValueError, KeyError, TypeError) as error:  # no UTF-8, no TOML, or other keys
        raise UserError(f"{path}: no valid lock file: {error}", Exit.DATA) from None


def _lock(
    paper: dict[str, Any], corpora: list[dict[str, Any]], sets: dict[str, Any], **plain: Any
) -> Lock:
    return Lock(
        paper=Paper(**paper),
        corpora=[_corpus(**corpus) for corpus in corpora],
        sets={name: TestSet(**known) for name, known in sets.items()},
        **plain,
    )


def _corpus(archives: list[dict[str, Any]], **plain: Any) -> PinnedCorpus:
    pinned = [
        Archive(a["file"], a["urls"], [FileVersion(**version) for version in a["versions"]])
        for a in archives
    ]
    return PinnedCorpus(archives=pinned, **plain)
