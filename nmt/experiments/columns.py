"""Columns of integers parallel to a text: their files, and those that a model reads."""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import tee

from nmt.config import Files, Settings, Toy
from nmt.errors import Exit, UserError

COLUMNS = "NAME=FILE,..."  # what --columns takes


def columns_of_test(settings: Settings) -> dict[str, str]:
    """The columns of the corpus's own test set, by name; a placeholder where none is named."""
    data = settings.data
    if not isinstance(data, Files):
        return {}
    return {name: column.test or f"TEST.{name}" for name, column in data.columns.items()}


def parse_columns(argument: str) -> dict[str, str]:
    """`heads=FILE,order=FILE` -> {"heads": FILE, ...}; raises UserError for anything else."""
    files: dict[str, str] = {}
    for part in argument.split(","):
        name, _, path = part.partition("=")
        if not name or not path or name in files:
            raise UserError(f"--columns {argument}: expected {COLUMNS}, each name once")
        files[name] = path
    return files


def with_columns(
    reads: Set[str], settings: Settings, lines: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> tuple[Iterable[str], dict[str, Iterable[str]]]:
    """The lines to translate, and all known columns parallel to them.

    `reads` are the columns that a model of these settings reads. What a model of the embedded
    corpus wants and is not given, the grammar says as the lines are read: UserError (65) for a line
    that is none of its sentences.
    """
    from nmt.data.columns import missing

    absent = missing(reads, columns)
    if not absent or not isinstance(settings.data, Toy):
        return lines, dict(columns)
    lines, *copies = tee(lines, 1 + len(absent))
    return lines, {
        **columns,
        **dict(zip(absent, map(_by_grammar, absent, copies), strict=True)),
    }


def _by_grammar(name: str, lines: Iterable[str]) -> Iterator[str]:
    from nmt.config import TOY_COLUMNS
    from nmt.data.toy import columns

    empty = "" if TOY_COLUMNS[name] == "word" else "0"
    for number, line in enumerate(lines, start=1):
        try:
            yield columns(line)[name] if line.strip() else empty
        except ValueError:
            raise UserError(
                f"line {number}: no sentence of the embedded grammar, so its {name} must be "
                f"given; add --columns {name}=FILE",
                Exit.DATA,
            ) from None
