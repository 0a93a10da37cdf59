"""From lines of text, with columns and translations, to what a model reads: parts and limits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

from nmt.config.data import WORDS, columns_of, tags_of
from nmt.config.settings import Decode, Settings
from nmt.decode.engine import LENGTH, NOT_EOS, Engine, Source, cut, within_table
from nmt.decode.notes import Notes
from nmt.decode.split import Splitter, separator
from nmt.errors import Exit, UserError
from nmt.modeldir import USUAL_LENGTH
from nmt.text.columns import ColumnLine, check_ranges, expand, missing
from nmt.text.languages import languages_of
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, language_codes
from nmt.text.vocab import EOS, UNK

if TYPE_CHECKING:  # exported models are translated without torch
    from nmt.model.transformer import Transformer


@dataclass
class Line:
    """A line of text on its way to its translation, with the lines of other files."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none
    parts: list[Source] = field(default_factory=list)  # what is translated, without empty ones


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


def windows(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Lines by window; a multiple of `size` ends one, as outputs are resumed there."""
    window: list[Line] = []
    for line in lines:
        window.append(line)
        if line.number % size == 0:
            yield window
            window = []
    if window:
        yield window


class LineReader:
    """Turns lines of text into the numbers that a model reads, and notes unusual lines."""

    def __init__(
        self, sides: TextSides, limits: "Engine | Transformer", decode: Decode | None = None
    ) -> None:
        """`limits` reads the numbers. `decode`: search settings; None: to read translations."""
        whole = replace(sides.settings.decode, split="lines", length="free", target_length="ratio")
        self.decode, self.limits = decode or whole, limits
        self.side, self.target, self.settings = sides.source, sides.target, sides.settings
        self.longest_trained: int | None = sides.facts.get("longest_source")
        self.longest = within_table(self.decode.max_source, limits.source_limit)  # pieces
        # pieces of a part: as in training, if that is known
        self.most = max(1, min(self.longest, self.longest_trained or USUAL_LENGTH))
        language, target = languages_of(replace(self.settings, decode=self.decode))
        self.separator = separator(target)  # of the translations of parts
        codes = language_codes(self.side.vocabulary)
        tags = {tag: self.side.ids(tag)[0] for tag in tags_of(self.settings.data)}
        self.splitter = Splitter(
            language if self.decode.split != "lines" else None,
            {*tags, *codes},
            lambda text: self.source(text).pieces,
            self.side.protection.spans,
        )
        # ids with one of which each source has to begin
        is_marian = isinstance(self.side.segmenter, MarianSegmenter)
        self.codes = codes if is_marian and not self.decode.source_language else {}
        corpora = getattr(self.settings.data, "corpora", {}).values()
        if corpora and all(corpus.tag for corpus in corpora):
            self.codes |= tags

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
        types = self._column_types(columns)
        files = {"the text": text, **{f"column {name}": file for name, file in columns.items()}}
        if targets is not None:
            files[target_name] = targets
        for number, row in enumerate(zip_longest(*files.values()), first):
            if None in row:
                short = next(name for name, line in zip(files, row, strict=True) if line is None)
                long = next(name for name, line in zip(files, row, strict=True) if line is not None)
                message = f"{short}: only {number - 1} lines, but {long} has more"
                raise UserError(f"{message}; they must be parallel", Exit.DATA)
            line, *rest = (line.removesuffix("\n").removesuffix("\r") for line in row)
            target = "" if targets is None else rest.pop()
            column_lines = {
                name: ColumnLine(types[name], integers, f"column {name}, line {number}")
                for name, integers in zip(columns, rest, strict=True)
            }
            yield Line(number, line, column_lines, target)

    def _column_types(self, columns: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Whether each column has integers per word or per sentence.

        Raises UserError for a missing column, and for one that the model does not know.
        """
        lengths = {LENGTH} if self.decode.reads_lengths else set()
        if lacking := missing(self.limits.columns | lengths, columns):
            raise UserError(
                f"column {lacking[0]}: this model reads it with the text; "
                f"give --columns {','.join(f'{name}=FILE' for name in lacking)}"
            )
        types = columns_of(self.settings.data)
        types.pop(WORDS, None)
        types |= dict.fromkeys(lengths, "sentence")
        if unknown := sorted(set(columns) - set(types)):
            advice = "; it is for decode.length=forced" if unknown[0] == LENGTH else ""
            raise UserError(
                f"column {unknown[0]}: unknown to this model; its corpus had "
                f"{', '.join(types) or 'none'}{advice}"
            )
        return types

    def read(self, line: Line, notes: Notes) -> None:
        """Set the parts of a line; none if its translation is empty, or is left empty."""
        whole = self.source(line.text)
        prefix = self._prefix(line.target, whole) if line.target else []
        if prefix is None:
            notes.add("unfit", line.number)
            return
        self._note(line, whole, notes)
        for number, part in enumerate(self._parts(line, whole, notes)):
            columns = self._columns(line, part)
            if part.pieces:
                required, limit = self._limits(part.pieces, columns, prefix)
                part = part._replace(line=line.number, part=number, columns=columns)
                line.parts.append(part._replace(required=required, limit=limit))

    def read_pairs(
        self, lines: Iterable[Line], most: int, window: int, notes: Notes
    ) -> Iterator[list[Line]]:
        """Set one part of each line, window by window: the line with its translation.

        A pair beyond a position table, or of more than `most` ids, gets none; after the last line
        that is an error.
        """
        limits = self.limits.source_limit, self.limits.target_limit
        longest = [most if limit is None else min(most, limit) for limit in limits]
        for window_lines in windows(lines, window):
            for line in window_lines:
                pair = self.pair(line)
                self._note(line, pair, notes)
                if len(pair.ids) <= longest[0] and len(pair.target) <= longest[1]:
                    line.parts = [pair]
                else:
                    notes.add("pairs", line.number, pair.length - 1)
            yield window_lines
        notes.report(self.codes)

    def pair(self, line: Line, truncate: bool = False) -> Source:
        """A line with its translation, with placeholders for strings that are in both.

        `truncate` each side to what its position table holds.
        """
        limits = (self.limits.source_limit, self.limits.target_limit) if truncate else (None, None)
        source = self.source(line.text, line.target).cut(limits[0])
        text = self.side.protection.insert_placeholders(line.target, source.protected.strings)
        target = cut(self.target.ids(text), limits[1])
        columns = self._columns(line, source)
        return source._replace(line=line.number, columns=columns, target=target)

    def source(self, text: str, target: str | None = None) -> Source:
        """A text without columns. With `target`, strings that both have become placeholders."""
        protected = self.side.protection.protect(text, target)
        return Source(self.side.ids(protected.text), {}, text=text, protected=protected)

    def _note(self, line: Line, source: Source, notes: Notes) -> None:
        """Note a line without a tag that all training lines had, or without any known piece."""
        if self.codes and source.pieces and source.ids[0] not in self.codes.values():
            notes.add("uncoded", line.number, source.pieces)
        if self.side.is_unknown(source.ids):
            notes.add("unknown", line.number, source.pieces)

    def _columns(self, line: Line, source: Source) -> dict[str, list[int]]:
        """The columns of a line, as a model reads them; UserError (65) if they do not fit."""
        words, where = WORDS in self.limits.columns, f"line {line.number}"
        if not line.columns and not words:
            return {}
        text, segmenter = source.protected.text, self.side.segmenter
        columns = expand(text, line.columns, segmenter, where, most=source.pieces, words=words)
        check_ranges(columns, self.limits.column_ranges, where)
        if self.decode.reads_lengths and min(columns[LENGTH]) < 0:
            raise UserError(f"{where}: column {LENGTH!r} is below 0; mend it", Exit.DATA)
        return columns

    def _limits(
        self, pieces: int, columns: Mapping[str, Sequence[int]], prefix: list[int]
    ) -> tuple[list[int], int]:
        """What an output must have from its beginning on, the prefix first, and its most pieces.

        A forced length beyond the position table is a limit as any other: the output need not end.
        """
        if self.decode.length == "forced":
            length = max(*columns[LENGTH], len(prefix))
            least = limit = within_table(length, self.limits.target_limit)
            end = [EOS] if limit == length else []
        else:
            limit, end = self._longest_output(pieces), []
            least = min(limit, int(self.decode.min_length_ratio * pieces))
        return [*prefix, *[NOT_EOS] * (least - len(prefix)), *end], limit

    def _longest_output(self, pieces: int) -> int:
        """The most pieces of the translation of so many; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        return within_table(limit, self.limits.target_limit)

    def _prefix(self, target: str, source: Source) -> list[int] | None:
        """The ids that begin a translation, without eos; None if no translation can begin so."""
        text = self.side.protection.insert_placeholders(target, source.protected.strings)
        ids = self.target.ids(text)[:-1]
        limit = self._longest_output(min(source.pieces, self.longest))
        if self.decode.length == "forced":  # which a prefix makes longer
            limit = within_table(len(ids), self.limits.target_limit)
        belongs_to_text = source.pieces or not ids
        return ids if UNK not in ids and belongs_to_text and len(ids) <= limit else None

    def _parts(self, line: Line, whole: Source, notes: Notes) -> list[Source]:
        """The texts that are translated for a line: itself, or the parts that decode.split makes.

        A part that is still too long is divided again. A refused line has none.
        """
        auto = self.decode.split == "auto"
        if self.decode.split == "lines" or (auto and whole.pieces <= self.most):
            return self._within_limit(line, whole, notes)
        groups = self.splitter.groups(line.text, self.most if auto else None)
        parts: list[Source] = []
        for text in groups:
            group_parts = self._within_limit(line, self.source(text), notes)
            if not group_parts:  # refused: half a translation would look like a whole one
                return []
            parts += group_parts
        if len(groups) > 1:
            notes.add("sentences", line.number, whole.pieces)
        return parts

    def _within_limit(self, line: Line, source: Source, notes: Notes) -> list[Source]:
        """A source, or its parts if it is too long.

        A line with columns or a target prefix cannot be split: it is refused.
        """
        pieces = source.pieces
        if pieces <= self.longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                notes.add("long", line.number, pieces)
            return [source]
        if self.decode.too_long == "truncate":
            notes.add("truncated", line.number, pieces)
            return [source.cut(self.longest + 1)]
        if self.decode.too_long == "refuse" or line.target.strip() or line.columns:
            notes.add("refused", line.number, pieces)
            return []
        notes.add("split", line.number, pieces)
        texts = self.splitter.at_spaces(source.text, self.most)
        return [self.source(text).cut(self.most + 1) for text in texts]
