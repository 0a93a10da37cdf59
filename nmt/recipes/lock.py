"""Lock files: what a recipe downloads, pinned by size and SHA-256, and what is extracted from it.

A recipe is one TOML file in the directory of this module. Nothing in it can lead elsewhere: files
are plain names, addresses are https or http, and members of archives are named one by one. The
classes below are its schema; configs have another reader, which replaces ${...} and so is not fit
for the files of strangers.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from nmt.errors import Exit, UserError

FORMAT = 3  # of lock files
Name = Annotated[str, r"[A-Za-z0-9][A-Za-z0-9._-]*", "a plain file name"]
ArchiveName = Annotated[
    str,
    r"[A-Za-z0-9][A-Za-z0-9._-]*\.(tsv\.gz|tar\.gz|tgz|zip)",
    "a plain file name that ends in .tsv.gz, .tar.gz, .tgz or .zip",
]
Language = Annotated[str, "[a-z]{2,3}", "a language code"]
Member = Annotated[str, r"(?!/)(?!(.*/)?\.\.(/|$))[^\\]+", "a name inside the archive"]
Url = Annotated[str, r"https?://[^\s/@]+/\S+", "https://... or http://..."]
Sha256 = Annotated[str, "[0-9a-f]{64}", "64 digits 0-9 a-f"]


class FileVersion(NamedTuple):
    """One content that a file may have."""

    size: int  # bytes
    sha256: Sha256


class Archive(NamedTuple):
    """A file to download; several archives of a corpus hold the same text."""

    file: ArchiveName
    urls: tuple[Url, ...]  # in the order to be tried
    versions: tuple[FileVersion, ...]  # any of them is right


class PinnedCorpus(NamedTuple):
    """A parallel text: where it comes from, and which members are its sides."""

    id: Name
    about: str
    archives: tuple[Archive, ...]  # the first available is used
    text: int  # rough bytes of both sides together, for the disk that is needed
    cap: int  # bytes of one extracted member; more is refused
    lines: int | None = None  # as a public source states them
    columns: tuple[Language, ...] = ()  # of a .tsv.gz: the languages of its first columns
    pairs: tuple[dict[str, tuple[Member, ...]], ...] = ()  # language -> the names it may have
    only: str = ""  # the choice with which it takes part, as `rapid=2019`; empty: any


class TestSet(NamedTuple):
    """A test or development set that sacreBLEU knows."""

    sacrebleu: str
    lines: int | None = None


class Option(NamedTuple):
    """A question that the paper leaves open, and its answers."""

    name: Name
    about: str
    choices: tuple[str, ...]  # the first is the default

    @property
    def answers(self) -> list[str]:
        """The choices as they are typed, NAME=CHOICE."""
        return [f"{self.name}={choice}" for choice in self.choices]


class Paper(NamedTuple):
    """The paper's figures on its data."""

    lines: int
    over_100: float  # percent of the pairs with a side of more pieces
    note: str
    from_76_to_100: float | None = None  # percent whose longer side has 76 to 100


class Lock(NamedTuple):
    """A recipe."""

    format: int
    name: Name
    title: str
    source: Language
    target: Language
    scale: str  # of conf/scale
    tables: tuple[str, ...]  # of conf/experiment: those that score the test sets of this pair
    runs: tuple[str, ...]  # of conf/run: the paper's with absolute and with relative positions
    paper: Paper
    corpora: tuple[PinnedCorpus, ...]
    sets: dict[Name, TestSet]  # by the name of their files
    dev: tuple[str, ...]  # sets of the development text, in this order
    all: tuple[str, ...] = ()  # sets of newstest_all, in this order; none: it is not built
    options: tuple[Option, ...] = ()

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def path_of(name: str) -> Path:
    """Where the lock file of a recipe lies."""
    return Path(__file__).with_name(f"{name}.toml")


def names() -> list[str]:
    """The recipes that come with nmt."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


def read(path: Path) -> Lock:
    """Read and check a lock file; UserError: 66 if it is missing, 65 for the first fault in it."""
    try:
        plain = tomllib.loads(path.read_bytes().decode())
        if plain.get("format") != FORMAT:
            raise ValueError(f"format: {plain.get('format')}; this version of nmt reads {FORMAT}")
        lock: Lock = _typed(Lock, plain, "")
        _check(lock)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; check the path", Exit.NO_INPUT) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: no valid TOML: {error}", Exit.DATA) from None
    except ValueError as error:
        raise UserError(f"{path}: {error}", Exit.DATA) from None
    return lock


def chosen(lock: Lock, answers: Sequence[str]) -> list[str]:
    """One answer to each option, the typed or the first one; UserError for any other."""
    known = {option.name: option.answers for option in lock.options}
    picked = {name: choices[0] for name, choices in known.items()}
    for answer in answers:
        name = answer.partition("=")[0]
        if name not in known:
            there = ", ".join(known) or "none"
            raise UserError(f"--option {answer}: {lock.name} has no such option; known: {there}")
        if answer not in known[name]:
            raise UserError(f"--option {answer}: say {' or '.join(known[name])}")
        picked[name] = answer
    return list(picked.values())


def _typed(hint: Any, value: Any, where: str) -> Any:
    """A plain value as this type; ValueError names the first place that does not fit."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return _typed(inner[0], value, where)
    if kind is tuple:
        items = enumerate(_plain(value, list, "a list of one at least", where))
        return tuple(_typed(inner[0], item, f"{where}[{i}]") for i, item in items)
    if kind is dict:
        named = _plain(value, dict, "a table", where).items()
        return {_typed(inner[0], n, where): _typed(inner[1], v, f"{where}.{n}") for n, v in named}
    if kind is Annotated:
        if not re.fullmatch(inner[1], _plain(value, str, inner[2], where)):
            raise ValueError(f"{where}: {value!r}; expected {inner[2]}")
        return value
    if not issubclass(hint, tuple):
        number = {int: "an integer above 0", float: "a number above 0"}
        return _plain(value, hint, number.get(hint, "a string"), where)
    below, hints = f"{where}." if where else "", get_type_hints(hint, include_extras=True)
    values = _plain(value, dict, "a table", where)
    if extra := [key for key in values if key not in hints]:
        raise ValueError(f"{below}{extra[0]}: no such key")
    if missing := [k for k in hints if k not in {**values, **hint._field_defaults}]:
        raise ValueError(f"{below}{missing[0]}: missing")
    return hint(**{key: _typed(hints[key], item, below + key) for key, item in values.items()})


def _plain(value: Any, kind: type, expected: str, where: str) -> Any:
    """The value, if it is of this kind, and neither empty nor a number below or at 0."""
    good = isinstance(value, (int, float) if kind is float else kind)
    if not good or isinstance(value, bool) or not value or (kind in (int, float) and value <= 0):
        raise ValueError(f"{where}: {value!r}; expected {expected}")
    return value


def _check(lock: Lock) -> None:
    """Raise ValueError where one part of a lock file does not fit another."""
    if lock.source == lock.target:
        raise ValueError(f"target: {lock.target!r} is the source, too")
    files = [archive.file for corpus in lock.corpora for archive in corpus.archives]
    for what, names in (("corpus", [c.id for c in lock.corpora]), ("file", files)):
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{what} {twice[0]}: stands there twice")
    for key, sets in (("dev", lock.dev), ("all", lock.all)):
        if unknown := [name for name in sets if name not in lock.sets]:
            raise ValueError(f"{key}: {unknown[0]} is not among the sets")
    for corpus in lock.corpora:
        _check_corpus(corpus, lock)


def _check_corpus(corpus: PinnedCorpus, lock: Lock) -> None:
    tables = {archive.file.endswith(".tsv.gz") for archive in corpus.archives}
    if tables != {bool(corpus.columns)} or bool(corpus.columns) == bool(corpus.pairs):
        raise ValueError(f"{corpus.id}: a .tsv.gz has columns, a tar or zip archive has pairs")
    for codes in corpus.pairs or (corpus.columns,):
        if sorted(codes) != sorted(lock.languages):
            raise ValueError(f"{corpus.id}: {list(codes)}; expected {' and '.join(lock.languages)}")
    for archive in corpus.archives:
        if (secure := [url.startswith("https") for url in archive.urls]) != sorted(secure)[::-1]:
            raise ValueError(f"{archive.file}: urls: give those of https first")
    if corpus.only and not any(corpus.only in option.answers for option in lock.options):
        raise ValueError(f"{corpus.id}: only {corpus.only!r}: no such option or choice")
