"""Lines of text, with columns and translations, in the numbers that a model reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from nmt.config.data import WORDS, columns_of, tags_of
from nmt.config.settings import Settings
from nmt.decode.notes import REFUSED, Notes
from nmt.errors import Exit, UserError
from nmt.text.columns import ColumnLine, check_ranges, expand, missing
from nmt.text.protection import ProtectedLine
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, language_codes
from nmt.text.vocab import EOS

LENGTH = "length"  # the column of lengths in pieces: decode.target_length=given, length=forced
NOT_EOS = -1  # where an output may have any id but EOS


class ParallelLine(NamedTuple):
    """A line of text, and the lines of other files that belong to it."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none


class Source(NamedTuple):
    """A line as the model reads it."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of a line that is translated in parts, from 0
    required: Sequence[int] = ()  # what its output has from the beginning on: ids, or NOT_EOS
    limit: int = 0  # ids of its output at most, without eos; unused where the output is given
    text: str = ""  # as it was given; empty where nobody reads it again
    protected: ProtectedLine = ProtectedLine("", {})  # the same, as the model reads it
    target: Sequence[int] = ()  # ids of a given translation, ending in EOS

    @property
    def pieces(self) -> int:
        """Ids without EOS."""
        return len(self.ids) - 1

    @property
    def length(self) -> int:
        """Ids of the longer side."""
        return max(len(self.ids), len(self.target))


class TextSides(Protocol):
    """The parts of a model that a reader needs besides its engine, as modeldir.Trained has."""

    @property
    def settings(self) -> Settings:
        """Of the training; here those of its data."""

    @property
    def source(self) -> Side:
        """Segmenter and vocabulary of the lines that are read."""

    @property
    def target(self) -> Side:
        """Those of the lines that are written."""

    @property
    def facts(self) -> dict[str, Any]:
        """`longest_source` is the pieces of the longest source in training; None: unknown."""


class ColumnRequirements(Protocol):
    """The columns that a model or an engine reads."""

    @property
    def columns(self) -> Set[str]:
        """Their names."""

    @property
    def column_ranges(self) -> Mapping[str, range]:
        """The integers that each may hold, by name; those without an entry: any."""


class SourceReader:
    """Turns text and its columns into the numbers that a trained model reads."""

    def __init__(
        self,
        sides: TextSides,
        requirements: ColumnRequirements,
        *,
        given_lengths: bool = False,
        has_language: bool = False,
    ) -> None:
        """`given_lengths`: each line has a column with the desired length of its translation.

        `has_language`: decode.source_language says the language of all lines; none begins with one.
        """
        self.side, self.target, self.settings = sides.source, sides.target, sides.settings
        self.requirements, self.given_lengths = requirements, given_lengths
        needs_code = isinstance(self.side.segmenter, MarianSegmenter) and not has_language
        self.codes = language_codes(self.side.vocabulary) if needs_code else {}
        corpora = getattr(self.settings.data, "corpora", {}).values()
        if corpora and all(corpus.tag for corpus in corpora):  # no source of training was without
            self.codes |= {tag: self.side.ids(tag)[0] for tag in tags_of(self.settings.data)}

    def lines(
        self,
        text: Iterable[str],
        columns: Mapping[str, Iterable[str]],
        targets: Iterable[str] | None = None,
        target_name: str = "translations",
        first: int = 1,
    ) -> Iterator[ParallelLine]:
        """Read a text in step with its columns and with `targets`, line by line.

        `target_name` is for errors, and `first` is the number of the first line. Raises UserError:
        (65) where a column, or `targets`, has fewer lines than the text, or more; (2) for a column
        that is missing, or that the model does not know.
        """
        types = self.column_types(columns)
        streams = {f"column {name}": iter(lines) for name, lines in columns.items()}
        streams |= {} if targets is None else {target_name: iter(targets)}
        number = first - 1
        for number, line in enumerate(text, first):
            values = {name: next(stream, None) for name, stream in streams.items()}
            for name, value in values.items():
                if value is None:
                    raise UserError(
                        f"{name}: only {number - 1} lines, but the text has more; they must be "
                        "parallel",
                        Exit.DATA,
                    )
            of_columns = {
                name: ColumnLine(
                    types[name], values[f"column {name}"] or "", f"column {name}, line {number}"
                )
                for name in columns
            }
            target = _without_end(values.get(target_name) or "")
            yield ParallelLine(number, _without_end(line), of_columns, target)
        for name, stream in streams.items():
            if next(stream, None) is not None:
                raise UserError(
                    f"{name}: more than the {number} lines of the text; they must be parallel",
                    Exit.DATA,
                )

    def column_types(self, columns: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Whether each column has integers per word or per sentence.

        Raises UserError for a column that is missing, or that the model does not know.
        """
        absent = missing(self.requirements.columns, columns)
        absent += missing({LENGTH} if self.given_lengths else set(), columns)
        if absent:
            raise UserError(
                f"column {absent[0]}: this model reads it with the text; "
                f"give --columns {','.join(f'{name}=FILE' for name in absent)}"
            )
        known = columns_of(self.settings.data)
        known.pop(WORDS, None)
        if self.given_lengths:
            known[LENGTH] = "sentence"
        if unknown := sorted(set(columns) - set(known)):
            advice = "; it is for decode.length=forced" if unknown[0] == LENGTH else ""
            raise UserError(
                f"column {unknown[0]}: unknown to this model; its corpus had "
                f"{', '.join(known) or 'none'}{advice}"
            )
        return known

    def note(self, number: int, ids: list[int], notes: Notes) -> None:
        """Count a line that names none of the model's languages, or has no piece it knows."""
        if self.codes and len(ids) > 1 and ids[0] not in self.codes.values():
            notes.add("uncoded", number, len(ids) - 1)
        if self.side.is_unknown(ids):
            notes.add("unknown", number, len(ids) - 1)

    def source(self, line: ParallelLine, protected: ProtectedLine, ids: list[int]) -> Source:
        """A line of these ids with its columns; UserError (65) for columns that do not fit.

        `protected` is the line as the model reads it.
        """
        words, where = WORDS in self.requirements.columns, f"line {line.number}"
        numbers: dict[str, list[int]] = {}
        if line.columns or words:
            text, segmenter, most = protected.text, self.side.segmenter, len(ids) - 1
            numbers = expand(text, line.columns, segmenter, where, most=most, words=words)
            check_ranges(numbers, self.requirements.column_ranges, where)
            if self.given_lengths and min(numbers[LENGTH]) < 0:
                raise UserError(f"{where}: column {LENGTH!r} is below 0; mend it", Exit.DATA)
        return Source(ids, numbers, line.number, text=line.text, protected=protected)

    def pair(
        self, line: ParallelLine, most: tuple[int | None, int | None] = (None, None)
    ) -> Source:
        """A line and its translation, with placeholders for strings that are in both.

        Each side is cut to as many ids as `most` says of it; None: to none.
        """
        protection, (source, target) = self.side.protection, most
        protected = protection.line(line.text, line.target)
        ids = self.target.ids(protection.place(line.target, protected.strings))
        of_source = cut(self.side.ids(protected.text), source)
        return self.source(line, protected, of_source)._replace(target=cut(ids, target))


def cut(ids: list[int], most: int | None) -> list[int]:
    """The first ids of a text, at most so many with EOS; None: all."""
    return ids if most is None or len(ids) <= most else [*ids[: most - 1], EOS]


def within_table(pieces: int, table: int | None) -> int:
    """So many pieces, or as many as a table of positions holds with eos or bos; None: any."""
    return pieces if table is None else min(pieces, table - 1)


def fits(
    pair: Source, tables: tuple[int | None, int | None], most: int, notes: Notes | None = None
) -> bool:
    """Whether a batch of `most` ids, and position tables of these sizes, hold a pair.

    One that is too long is counted in `notes`; without them it raises UserError (65).
    """
    sides = zip(("source", "translation"), (pair.ids, pair.target), tables, strict=True)
    for side, ids, table in sides:
        pieces, limit = len(ids) - 1, within_table(most - 1, table)
        if pieces <= limit:
            continue
        if notes is None:
            raise UserError(
                f"line {pair.line}: the {side} has {pieces} pieces, but a batch or "
                f"position table holds {limit}; leave the line out",
                Exit.DATA,
            )
        notes.add(REFUSED, pair.line, pieces)
        return False
    return True


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
