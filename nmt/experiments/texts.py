"""Where the test text of a corpus lies, and what stands beside a text that is translated."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import Files, Settings, Toy
from nmt.errors import Exit, UserError

if TYPE_CHECKING:
    from nmt.modeldir import Trained

COLUMNS = "NAME=FILE,..."  # what --columns takes
BY_SENTENCE = "segment each sentence of a joined line apart, by the record of nmt-testset"


def test_texts(settings: Settings) -> tuple[str, str]:
    """The test set's files, source and target; placeholders where the config names none.

    Those of the embedded corpus lie in its prepared directory, which is made if it is missing.
    """
    data = settings.data
    if isinstance(data, Files):
        source = data.test_source or f"TEST.{data.source_language}"
        return source, data.test_target or f"TEST.{data.target_language}"
    from nmt.data.prepare import prepare

    prepared = prepare(data, settings.segmenter)
    facts = prepared.facts
    return str(Path(prepared.path, facts["test_source"])), str(
        Path(prepared.path, facts["test_target"])
    )


def test_columns(settings: Settings) -> list[str]:
    """The words --columns NAME=FILE,... for the test set; none where no file is needed."""
    data = settings.data
    if not isinstance(data, Files) or not data.columns:
        return []
    named = [f"{name}={column.test or f'TEST.{name}'}" for name, column in data.columns.items()]
    return ["--columns", ",".join(named)]


def columns_named(word: str | None) -> dict[str, str]:
    """`heads=FILE,order=FILE` -> {"heads": FILE, ...}; raises UserError for anything else."""
    found: dict[str, str] = {}
    for part in word.split(",") if word is not None else ():
        name, _, path = part.partition("=")
        if not name or not path or name in found:
            raise UserError(f"--columns {word}: expected {COLUMNS}, each name once")
        found[name] = path
    return found


def with_columns(
    trained: "Trained", lines: Iterable[str], given: Mapping[str, Iterable[str]]
) -> tuple[Iterable[str], dict[str, Iterable[str]]]:
    """The lines to translate, and all columns beside them that are known.

    What a model of the embedded corpus wants and is not given, the grammar says as the lines are
    read: UserError (65) for a line that is none of its sentences.
    """
    from nmt.data.columns import missing

    absent = missing(trained.model.columns, given)
    if not absent or not isinstance(trained.settings.data, Toy):
        return lines, dict(given)
    lines, *copies = tee(lines, 1 + len(absent))
    return lines, {**given, **dict(zip(absent, map(_parsed, absent, copies), strict=True))}


def _parsed(name: str, lines: Iterable[str]) -> Iterator[str]:
    from nmt.config import TOY_COLUMNS
    from nmt.data.toy import columns

    empty = "" if TOY_COLUMNS[name] == "word" else "0"
    for number, line in enumerate(lines, start=1):
        try:
            yield columns(line)[name] if line.strip() else empty
        except ValueError:
            raise UserError(
                f"line {number}: no sentence of the embedded grammar, so its {name} must be "
                f"told; give --columns {name}=FILE",
                Exit.DATA,
            ) from None
