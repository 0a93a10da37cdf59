"""Lock files: what a recipe downloads, pinned by size and SHA-256, and what is taken out of it.

A recipe is one TOML file beside this module. Nothing that it names can lead anywhere else: files
are plain names, addresses are https or http, and members of archives are named one by one.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from nmt.errors import Exit, UserError

FORMAT = 1  # of lock files
KINDS = {"tar.gz": (".tar.gz", ".tgz"), "zip": (".zip",), "gz": (".gz",)}  # kind -> file names
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it becomes a file's name as it stands
SHA256 = re.compile(r"[0-9a-f]{64}")
Row = TypeVar("Row")  # a NamedTuple below


class FileVersion(NamedTuple):
    """One content that a file may have."""

    size: int  # bytes
    sha256: str


class Archive(NamedTuple):
    """A file to download; several archives of a corpus hold the same text."""

    file: str
    kind: str  # one of KINDS
    urls: tuple[str, ...]  # in the order to be tried
    versions: tuple[FileVersion, ...]  # any of them is right


class PinnedCorpus(NamedTuple):
    """A parallel text: where it comes from, and which members are its sides."""

    id: str
    about: str
    mtdata: str | None  # its id in mtdata, to cross-check
    lines: int | None  # as a public source states them; None: never stated
    text: int  # rough bytes of both sides together, for estimates
    cap: int  # bytes of one extracted member; more is refused
    columns: tuple[str, str] | None  # kind gz: language of the first columns of the TSV
    pairs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # source, target: accepted names
    archives: tuple[Archive, ...]  # the first that can be had is used
    only: dict[str, str]  # option -> choice with which this corpus takes part


class TestSet(NamedTuple):
    """A test or development set that sacreBLEU knows."""

    name: str  # of the files: NAME.de, NAME.en
    sacrebleu: str
    lines: int | None


class Option(NamedTuple):
    """A question that the paper leaves open, and its answers."""

    about: str
    default: str
    choices: tuple[str, ...]


class Paper(NamedTuple):
    """What the paper says of its data."""

    lines: int
    over_100: float  # percent of the pairs with a side of more pieces
    from_76_to_100: float | None  # percent whose longer side has 76 to 100; None: not told
    note: str


class Lock(NamedTuple):
    """A recipe."""

    name: str
    title: str
    source: str  # language codes
    target: str
    scale: str  # of conf/scale
    tables: tuple[str, ...]  # of conf/experiment: those that score the test sets of this pair
    encodings: tuple[str, ...]  # trained unless others are asked for
    runs: dict[str, str]  # encoding -> the paper's run of it, in conf/run
    other_run: str  # the run in which any other encoding takes the place of its own
    paper: Paper
    options: dict[str, Option]
    corpora: tuple[PinnedCorpus, ...]
    sets: dict[str, TestSet]
    dev: tuple[str, ...]  # sets that make the development text, in this order
    test: tuple[str, ...]  # sets that are scored
    all: tuple[str, ...]  # sets of newstest_all, in this order; none: it is not built

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def names() -> list[str]:
    """The recipes that come with nmt."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


def read(path: Path) -> Lock:
    """Read and check a lock file; UserError: 66 if it is missing, 65 for the first fault in it."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; check the path", Exit.NO_INPUT) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no UTF-8 ({error})", Exit.DATA) from None
    try:
        return _lock(_Table(tomllib.loads(text), ""))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: no valid TOML: {error}", Exit.DATA) from None
    except ValueError as error:
        raise UserError(f"{path}: {error}", Exit.DATA) from None


def chosen(lock: Lock, given: Sequence[str]) -> dict[str, str]:
    """The choice of each option, from words like `rapid=2016`; UserError for what is none."""
    picked = {name: option.default for name, option in lock.options.items()}
    for word in given:
        name, _, value = word.partition("=")
        if name not in lock.options:
            known = ", ".join(lock.options) or "none"
            raise UserError(f"--option {word}: {lock.name} has no such option; known: {known}")
        if value not in lock.options[name].choices:
            choices = " or ".join(f"{name}={choice}" for choice in lock.options[name].choices)
            raise UserError(f"--option {word}: say {choices}")
        picked[name] = value
    return picked


def taking_part(lock: Lock, picked: Mapping[str, str]) -> list[PinnedCorpus]:
    """The corpora of a recipe with these choices, in the order of the lock file."""
    return [c for c in lock.corpora if all(picked[name] == v for name, v in c.only.items())]


class _Table:
    """Reads a TOML table key by key; what is wrong or left over is a ValueError."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self._values, self._where = dict(values), where

    def at(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def take(self, key: str, kind: type, *default: Any) -> Any:
        if key not in self._values:
            if default:
                return default[0]
            raise ValueError(f"{self.at(key)}: missing")
        value = self._values.pop(key)
        good = isinstance(value, (int, float) if kind is float else kind)
        if not good or isinstance(value, bool):
            wanted = {str: "a string", int: "an integer", list: "a list", dict: "a table"}
            raise ValueError(f"{self.at(key)}: {value!r}; expected {wanted.get(kind, 'a number')}")
        if kind in (int, float) and value <= 0:
            raise ValueError(f"{self.at(key)}: {value}; expected more than 0")
        if kind is str and not value:
            raise ValueError(f"{self.at(key)}: is empty")
        return value

    def strings(self, key: str, *default: Any) -> tuple[str, ...]:
        strings = self.take(key, list, *default)
        if not all(isinstance(item, str) and item for item in strings):
            raise ValueError(f"{self.at(key)}: {strings!r}; expected a list of strings")
        if len(set(strings)) < len(strings):
            raise ValueError(f"{self.at(key)}: {strings!r}; one stands there twice")
        return tuple(strings)

    def table(self, key: str, *default: Any) -> "_Table":
        return _Table(self.take(key, dict, *default), self.at(key))

    def tables(self, key: str, *default: Any) -> "list[_Table]":
        tables = self.take(key, list, *default)
        if not all(isinstance(table, dict) for table in tables) or not (tables or default):
            raise ValueError(f"{self.at(key)}: expected tables")
        return [_Table(table, f"{self.at(key)}[{i}]") for i, table in enumerate(tables)]

    def named(self, key: str) -> "dict[str, _Table]":
        inner = self.table(key, {})
        return {name: inner.table(name) for name in list(inner._values)}

    def read(self, row: type[Row], /, **made: Any) -> Row:
        """A NamedTuple of this table: fields that are not `made` come from the keys of their names.

        Each by its type: one that may be None may be missing.
        """
        for name, hint in get_type_hints(row).items():
            if name in made:
                continue
            if get_origin(hint) is tuple:
                made[name] = self.strings(name)
            elif isinstance(hint, UnionType):
                made[name] = self.take(name, get_args(hint)[0], None)
            else:
                made[name] = self.take(name, hint)
        self.done()
        return row(**made)

    def done(self) -> None:
        if self._values:
            raise ValueError(f"{self.at(next(iter(self._values)))}: no such key")


def _lock(top: _Table) -> Lock:
    if (number := top.take("format", int)) != FORMAT:
        raise ValueError(f"format: {number}; this version of nmt reads format {FORMAT}")
    source, target = top.take("source", str), top.take("target", str)
    for key, code in (("source", source), ("target", target)):
        if not re.fullmatch(r"[a-z]{2,3}", code):
            raise ValueError(f"{key}: {code!r}; expected a language code")
    if source == target:
        raise ValueError(f"target: {target!r} is the source, too")
    runs = dict(top.take("runs", dict))
    if wrong := [name for name, run in runs.items() if not isinstance(run, str)]:
        raise ValueError(f"runs.{wrong[0]}: {runs[wrong[0]]!r}; expected a string")
    options = {name: _option(table) for name, table in top.named("options").items()}
    corpora = tuple(_corpus(t, (source, target), options) for t in top.tables("corpus"))
    _refuse_twins("corpus", [c.id for c in corpora])
    _refuse_twins("file", [a.file for c in corpora for a in c.archives])
    sets = [table.read(TestSet, name=_plain(table, "name")) for table in top.tables("set")]
    _refuse_twins("set", [test.name for test in sets])
    lock = top.read(
        Lock,
        source=source,
        target=target,
        name=_plain(top, "name"),
        paper=top.table("paper").read(Paper),
        options=options,
        runs=runs,
        corpora=corpora,
        sets={test.name: test for test in sets},
        all=top.strings("all", []),
    )
    for key, named in (("dev", lock.dev), ("test", lock.test), ("all", lock.all)):
        if unknown := [name for name in named if name not in lock.sets]:
            raise ValueError(f"{key}: {unknown[0]} is not among the sets")
    for key, named in (("dev", lock.dev), ("test", lock.test), ("tables", lock.tables)):
        if not named:
            raise ValueError(f"{key}: is empty; name one at least")
    return lock


def _refuse_twins(what: str, names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{what} {twice}: stands there twice")


def _plain(table: _Table, key: str) -> str:
    """A string that is fit for a file's name."""
    name = str(table.take(key, str))
    if not FILE.fullmatch(name):
        raise ValueError(f"{table.at(key)}: {name!r}; expected a plain file name")
    return name


def _option(table: _Table) -> Option:
    option = table.read(Option)
    if option.default not in option.choices:
        raise ValueError(f"{table.at('default')}: {option.default!r} is not among the choices")
    return option


def _corpus(
    table: _Table, languages: tuple[str, str], options: Mapping[str, Option]
) -> PinnedCorpus:
    columns = table.strings("columns", [])
    pairs = tuple(_pair(pair, languages) for pair in table.tables("pairs", []))
    archives = tuple(_archive(archive) for archive in table.tables("archive"))
    if columns and sorted(columns) != sorted(languages):
        raise ValueError(f"{table.at('columns')}: {columns}; expected {' and '.join(languages)}")
    for archive in archives:
        if (archive.kind == "gz") != bool(columns) or bool(columns) == bool(pairs):
            raise ValueError(
                f"{table.at('archive')}: {archive.file}: a .gz has columns, "
                "a tar or zip archive has pairs"
            )
    corpus = table.read(
        PinnedCorpus,
        id=_plain(table, "id"),
        columns=(columns[0], columns[1]) if columns else None,
        pairs=pairs,
        archives=archives,
        only=dict(table.take("only", dict, {})),
    )
    for name, value in corpus.only.items():
        if name not in options or value not in options[name].choices:
            raise ValueError(f"{table.at('only')}: {name} = {value!r}: no such option or choice")
    return corpus


def _pair(table: _Table, languages: tuple[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The accepted names of both sides: strings, or lists of them where versions differ."""
    sides = []
    for code in languages:
        single = isinstance(table._values.get(code), str)
        names = (table.take(code, str),) if single else table.strings(code)
        for name in names:
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                raise ValueError(f"{table.at(code)}: {name!r}; expected a name inside the archive")
        sides.append(names)
    table.done()
    return sides[0], sides[1]


def _archive(table: _Table) -> Archive:
    file, kind = _plain(table, "file"), table.take("kind", str)
    if kind not in KINDS:
        raise ValueError(f"{table.at('kind')}: {kind!r}; expected one of {', '.join(KINDS)}")
    if not file.endswith(KINDS[kind]):
        raise ValueError(f"{table.at('file')}: {file!r}; {kind} ends in {' or '.join(KINDS[kind])}")
    urls = table.strings("urls")
    schemes = [_scheme(url, table.at("urls")) for url in urls]
    if not urls or schemes != sorted(schemes, reverse=True):
        raise ValueError(f"{table.at('urls')}: give one at least, those of https first")
    versions = tuple(_version(version) for version in table.tables("versions"))
    return table.read(Archive, file=file, kind=kind, urls=urls, versions=versions)


def _scheme(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        good = False
    if not good or re.search(r"\s", url):
        raise ValueError(f"{where}: {url!r}; expected https://... or http://...")
    return parts.scheme


def _version(table: _Table) -> FileVersion:
    version = table.read(FileVersion, size=table.take("bytes", int))
    if not SHA256.fullmatch(version.sha256):
        raise ValueError(f"{table.at('sha256')}: {version.sha256!r}; expected 64 digits 0-9 a-f")
    return version
