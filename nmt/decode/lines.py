"""From lines of text, with columns and translations, to what a model reads: parts and limits."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from nmt.config.data import WORDS, columns_of, tags_of
from nmt.config.settings import Decode
from nmt.decode.engine import Engine
from nmt.decode.scheduler import windows
from nmt.decode.sources import LENGTH, NOT_EOS, Line, Notes, Source, TextSides, cut, within_table
from nmt.decode.split import Splitter, separator
from nmt.errors import Exit, UserError
from nmt.modeldir import USUAL_LENGTH
from nmt.text.columns import ColumnLine, check_ranges, expand, missing
from nmt.text.languages import languages_of
from nmt.text.unigram import MarianSegmenter, language_codes
from nmt.text.vocab import EOS, UNK

if TYPE_CHECKING:  # exported models are translated without torch
    from nmt.model.transformer import Transformer

log = logging.getLogger(__name__)


class LineReader:
    """Turns lines of text into the numbers that a model reads, and notes unusual lines."""

    def __init__(
        self, sides: TextSides, limits: "Engine | Transformer", decode: Decode | None = None
    ) -> None:
        """`limits` reads the numbers. `decode`: search settings; None: translations are given."""
        whole = replace(sides.settings.decode, split="lines", length="free", target_length="ratio")
        self.decode, self.limits = decode or whole, limits
        self.side, self.target, self.settings = sides.source, sides.target, sides.settings
        self.longest_trained: int | None = sides.facts.get("longest_source")
        self.longest = within_table(self.decode.max_source, limits.source_limit)  # pieces
        # of a part: those of training, where it is known
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
        is_marian = isinstance(self.side.segmenter, MarianSegmenter)
        self.codes = codes if is_marian and not self.decode.source_language else {}
        corpora = getattr(self.settings.data, "corpora", {}).values()
        if corpora and all(corpus.tag for corpus in corpora):  # no source of training was without
            self.codes |= tags
        self._warned = False  # of an unfit prefix

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
        names = ["the text", *(f"column {name}" for name in columns), target_name]
        files = [text, *columns.values(), *([] if targets is None else [targets])]
        for number, row in enumerate(zip_longest(*files), first):
            if None in row:
                has_ended = [line is None for line in row]
                short, long = names[has_ended.index(True)], names[has_ended.index(False)]
                message = f"{short}: only {number - 1} lines, but {long} has more"
                raise UserError(f"{message}; they must be parallel", Exit.DATA)
            of_columns = {
                name: ColumnLine(types[name], line, f"column {name}, line {number}")
                for name, line in zip(columns, row[1:], strict=False)
            }
            target = "" if targets is None else row[-1]
            yield Line(number, _without_end(row[0]), of_columns, _without_end(target))

    def column_types(self, columns: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Whether each column has integers per word or per sentence.

        Raises UserError for a missing column, and for one that the model does not know.
        """
        lengths = {LENGTH} if self.decode.reads_lengths else set()
        if not_given := missing(self.limits.columns | lengths, columns):
            raise UserError(
                f"column {not_given[0]}: this model reads it with the text; "
                f"give --columns {','.join(f'{name}=FILE' for name in not_given)}"
            )
        corpus_columns = columns_of(self.settings.data)
        corpus_columns.pop(WORDS, None)
        corpus_columns |= dict.fromkeys(lengths, "sentence")
        if unknown := sorted(set(columns) - set(corpus_columns)):
            advice = "; it is for decode.length=forced" if unknown[0] == LENGTH else ""
            raise UserError(
                f"column {unknown[0]}: unknown to this model; its corpus had "
                f"{', '.join(corpus_columns) or 'none'}{advice}"
            )
        return corpus_columns

    def limit(self, pieces: int) -> int:
        """The most pieces of the translation of so many; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        return within_table(limit, self.limits.target_limit)

    def read(self, line: Line) -> None:
        """Set the parts of a line; none if its translation is empty, or is left empty."""
        whole = self.source(line.text)
        prefix, reason = self._prefix(line, whole)
        if reason:
            if not self._warned:
                message = "target prefix, line %d: %s; its line is left empty"
                log.warning(message, line.number, reason)
            self._warned = True
            line.note("unfit")
            return
        self.note(line, whole)
        parts = [self.with_columns(line, part) for part in self._parts(line, whole)]
        line.parts = [
            self._with_limits(part, prefix)._replace(part=number)
            for number, part in enumerate(parts)
            if part.pieces
        ]

    def read_pairs(
        self, lines: Iterable[Line], most: int, window: int, notes: Notes
    ) -> Iterator[list[Line]]:
        """Set one part of each line, window by window: the line with its translation.

        A pair beyond a position table, or of more than `most` ids, gets none; after the last line
        that is an error.
        """
        limits = self.limits.source_limit, self.limits.target_limit
        longest = [most if limit is None else min(most, limit) for limit in limits]
        for of_window in windows(lines, window):
            for line in of_window:
                pair = self.pair(line)
                self.note(line, pair)
                if len(pair.ids) <= longest[0] and len(pair.target) <= longest[1]:
                    line.parts = [pair]
                else:
                    line.note("pairs", pair.length - 1)
            notes.add(of_window)
            yield of_window
        notes.report(self.codes)

    def note(self, line: Line, source: Source) -> None:
        """Note a line that names none of the model's languages, or has no known piece."""
        if self.codes and source.pieces and source.ids[0] not in self.codes.values():
            line.note("uncoded", source.pieces)
        if self.side.is_unknown(source.ids):
            line.note("unknown", source.pieces)

    def source(self, text: str, target: str | None = None) -> Source:
        """A text without columns, with placeholders for strings, if given those of `target`."""
        protected = self.side.protection.line(text, target)
        return Source(self.side.ids(protected.text), {}, text=text, protected=protected)

    def with_columns(self, line: Line, source: Source) -> Source:
        """Add the number and the columns of the line; UserError (65) for those that do not fit."""
        words, where = WORDS in self.limits.columns, f"line {line.number}"
        source = source._replace(line=line.number)
        if not line.columns and not words:
            return source
        text, segmenter = source.protected.text, self.side.segmenter
        numbers = expand(text, line.columns, segmenter, where, most=source.pieces, words=words)
        check_ranges(numbers, self.limits.column_ranges, where)
        if self.decode.reads_lengths and min(numbers[LENGTH]) < 0:
            raise UserError(f"{where}: column {LENGTH!r} is below 0; mend it", Exit.DATA)
        return source._replace(columns=numbers)

    def _with_limits(self, source: Source, prefix: list[int]) -> Source:
        """Add the limits of the output, which holds the prefix.

        A forced length beyond the position table is a limit as any other: the output need not end.
        """
        if self.decode.length == "forced":
            length = max(*source.columns[LENGTH], len(prefix))
            least = limit = within_table(length, self.limits.target_limit)
            end = [EOS] if limit == length else []
        else:
            limit, end = self.limit(source.pieces), []
            least = min(limit, int(self.decode.min_length_ratio * source.pieces))
        required = [*prefix, *[NOT_EOS] * (least - len(prefix)), *end]
        return source._replace(required=required, limit=limit)

    def _parts(self, line: Line, whole: Source) -> list[Source]:
        """The texts that are translated for a line: itself, or the parts that decode.split makes.

        A part that is still too long is divided again. A refused line has none.
        """
        auto = self.decode.split == "auto"
        if self.decode.split == "lines" or (auto and whole.pieces <= self.most):
            return self._within_limit(line, whole)
        groups = self.splitter.groups(line.text, self.most if auto else None)
        parts: list[Source] = []
        for text in groups:
            of_group = self._within_limit(line, self.source(text))
            if not of_group:  # refused: half a translation would look like a whole one
                return []
            parts += of_group
        if len(groups) > 1:
            line.note("sentences", whole.pieces)
        return parts

    def _within_limit(self, line: Line, source: Source) -> list[Source]:
        """A source, or its parts if it is too long.

        A line with columns or a target prefix cannot be split: it is refused.
        """
        pieces = source.pieces
        if pieces <= self.longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                line.note("long", pieces)
            return [source]
        if self.decode.too_long == "truncate":
            line.note("truncated", pieces)
            return [source.cut(self.longest + 1)]
        if self.decode.too_long == "refuse" or line.target.strip() or line.columns:
            line.note("refused", pieces)
            return []
        line.note("split", pieces)
        texts = self.splitter.at_spaces(source.text, self.most)
        return [self.source(text).cut(self.most + 1) for text in texts]

    def _prefix(self, line: Line, source: Source) -> tuple[list[int], str]:
        """The ids that begin a translation, without eos; and why none can begin so, or ""."""
        if not line.target:
            return [], ""
        text = self.side.protection.insert_placeholders(line.target, source.protected.strings)
        ids = self.target.ids(text)[:-1]
        limit = self.limit(min(source.pieces, self.longest))
        if self.decode.length == "forced":  # which a prefix makes longer
            limit = within_table(len(ids), self.limits.target_limit)
        reason = ""
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            reason = f"the model does not know the piece {piece!r}"
        elif ids and not source.pieces:
            reason = "the line of the text is empty, and so is its translation; empty both"
        elif len(ids) > limit:
            reason = f"has {len(ids)} pieces, but the translation may have {limit}; shorten it"
        return ids, reason

    def pair(self, line: Line, truncate: bool = False) -> Source:
        """A line with its given translation, with placeholders for strings that are in both.

        `truncate` each side to what its position table holds.
        """
        limits = (self.limits.source_limit, self.limits.target_limit) if truncate else (None, None)
        source = self.source(line.text, line.target).cut(limits[0])
        text = self.side.protection.insert_placeholders(line.target, source.protected.strings)
        target = cut(self.target.ids(text), limits[1])
        return self.with_columns(line, source)._replace(target=target)


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
