"""Lines of text, with columns and translations, in the numbers that a model reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

from nmt.config.data import WORDS, columns_of, tags_of
from nmt.config.settings import Settings
from nmt.errors import Exit, UserError
from nmt.text.columns import ColumnLine, check_ranges, expand, missing
from nmt.text.protection import ProtectedLine
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, language_codes
from nmt.text.vocab import EOS

LENGTH = "length"  # the column of lengths in pieces: decode.target_length=given, length=forced
NOT_EOS = -1  # where an output may have any id but EOS


@dataclass
class Line:
    """A line of text, the lines of other files that belong to it, and what is unusual about it."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none
    notes: list[tuple[str, int, int]] = field(default_factory=list)  # for `notes.Notes.add`

    def note(self, kind: str, pieces: int = 0, count: int = 1) -> None:
        """Note something unusual of so many pieces, by a kind of `notes.MESSAGES`."""
        self.notes.append((kind, pieces, count))


class Source(NamedTuple):
    """A line as the model reads it, or a part of a line that is translated in parts."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of the line, from 0
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

    def cut(self, most: int | None) -> "Source":
        """The source with at most so many ids; None: all."""
        return self._replace(ids=cut(self.ids, most))

    def fits(self, tables: tuple[int | None, int | None], most: int) -> bool:
        """Whether a batch of `most` ids, and position tables of these sizes, hold both sides."""
        sides = zip((self.ids, self.target), tables, strict=True)
        return all(len(ids) <= min(most, table or most) for ids, table in sides)


class TextSides(Protocol):
    """The parts of a model that a reader needs besides its engine, as modeldir.Trained has."""

    @property
    def settings(self) -> Settings: ...
    @property
    def source(self) -> Side: ...
    @property
    def target(self) -> Side: ...
    @property
    def facts(self) -> dict[str, Any]:
        """`longest_source` is the pieces of the longest source in training; None: unknown."""


class ColumnRequirements(Protocol):
    """The columns that a model or an engine reads."""

    @property
    def columns(self) -> Set[str]: ...
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
    ) -> Iterator[Line]:
        """Read a text in step with its columns and with `targets`, line by line.

        `target_name` is for errors, and `first` is the number of the first line. Raises UserError:
        (65) where they do not have equally many lines; (2) for a column that is missing, or that
        the model does not know.
        """
        types = self.column_types(columns)
        streams = {"the text": text, **{f"column {name}": lines for name, lines in columns.items()}}
        streams |= {} if targets is None else {target_name: targets}
        for number, row in enumerate(zip_longest(*streams.values()), first):
            lines = dict(zip(streams, row, strict=True))
            if ended := [name for name, line in lines.items() if line is None]:
                raise UserError(
                    f"{ended[0]}: only {number - 1} lines, but "
                    f"{next(name for name in lines if name not in ended)} has more; they must be "
                    "parallel",
                    Exit.DATA,
                )
            of_columns = {
                name: ColumnLine(types[name], lines[of_name], f"{of_name}, line {number}")
                for name, of_name in ((name, f"column {name}") for name in columns)
            }
            target = _without_end(lines.get(target_name, ""))
            yield Line(number, _without_end(lines["the text"]), of_columns, target)

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

    def source(self, text: str, target: str | None = None) -> Source:
        """A text without columns, with placeholders for strings; all of them are in `target`."""
        protected = self.side.protection.line(text, target)
        return Source(self.side.ids(protected.text), {}, text=text, protected=protected)

    def note(self, line: Line, source: Source) -> None:
        """Note a line that names none of the model's languages, or has no piece it knows."""
        if self.codes and source.pieces and source.ids[0] not in self.codes.values():
            line.note("uncoded", source.pieces)
        if self.side.is_unknown(source.ids):
            line.note("unknown", source.pieces)

    def with_columns(self, line: Line, source: Source) -> Source:
        """Add the number and the columns of the line; UserError (65) for those that do not fit."""
        words, where = WORDS in self.requirements.columns, f"line {line.number}"
        source = source._replace(line=line.number)
        if not line.columns and not words:
            return source
        text, segmenter = source.protected.text, self.side.segmenter
        numbers = expand(text, line.columns, segmenter, where, most=source.pieces, words=words)
        check_ranges(numbers, self.requirements.column_ranges, where)
        if self.given_lengths and min(numbers[LENGTH]) < 0:
            raise UserError(f"{where}: column {LENGTH!r} is below 0; mend it", Exit.DATA)
        return source._replace(columns=numbers)

    def pair(self, line: Line, most: tuple[int | None, int | None] = (None, None)) -> Source:
        """A line with its given translation, with placeholders for strings that are in both.

        Each side is cut to as many ids as `most` says of it; None: to none.
        """
        source = self.source(line.text, line.target).cut(most[0])
        text = self.side.protection.place(line.target, source.protected.strings)
        target = cut(self.target.ids(text), most[1])
        return self.with_columns(line, source)._replace(target=target)


def cut(ids: list[int], most: int | None) -> list[int]:
    """The first ids of a text, at most so many with EOS; None: all."""
    return ids if most is None or len(ids) <= most else [*ids[: most - 1], EOS]


def within_table(pieces: int, table: int | None) -> int:
    """So many pieces, or as many as a table of positions holds with eos or bos; None: any."""
    return pieces if table is None else min(pieces, table - 1)


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
