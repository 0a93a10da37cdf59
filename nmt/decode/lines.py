"""From a line of text to sources that the model can translate: limits, parts and prefixes."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from nmt.config import WORDS, Decode, Settings
from nmt.data.marian import language_codes
from nmt.data.side import Side
from nmt.data.vocab import EOS, UNK
from nmt.decode.engine import Engine
from nmt.decode.notes import Notes
from nmt.decode.sources import LENGTH, Source, SourceReader
from nmt.decode.streams import ParallelLine
from nmt.modelfiles import USUAL_LENGTH

log = logging.getLogger(__name__)


class TextSides(Protocol):
    """The parts of a model that a translator needs besides its engine, as modeldir.Trained has."""

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


class UnfitPrefixError(Exception):
    """No translation of this line can begin with its prefix."""


class LineReader(SourceReader):
    """Makes sources of lines, and counts the unusual ones."""

    def __init__(self, sides: TextSides, decode: Decode, engine: Engine) -> None:
        super().__init__(sides.source.segmenter, sides.settings, engine, decode.reads_lengths)
        self.side, self.target, self.decode, self.engine = (
            sides.source,
            sides.target,
            decode,
            engine,
        )
        self.longest_trained: int | None = sides.facts["longest_source"]
        self.codes = (
            {}
            if decode.source_language
            else language_codes(sides.source.segmenter, sides.source.vocabulary)
        )
        self._warned = False  # of an unfit prefix

    @property
    def longest(self) -> int:
        """The most pieces that a source may have, without eos."""
        table, most = self.engine.source_limit, self.decode.max_source
        return most if table is None else min(most, table - 1)

    def limit(self, pieces: int) -> int:
        """The most pieces of the translation of so many; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        return self._in_table(limit)

    def _in_table(self, limit: int) -> int:
        table = self.engine.target_limit  # bos, or eos, and the pieces
        return limit if table is None else min(limit, table - 1)

    def read(self, line: ParallelLine, notes: Notes) -> list[Source]:
        """One source, several if the line is split, none if its translation is left empty."""
        ids = self.side.ids(line.text)
        try:
            prefix = self._prefix(line.target, len(ids) - 1)
        except UnfitPrefixError as error:
            if not self._warned:
                log.warning(
                    "target prefix, line %d: %s; its line is left empty", line.number, error
                )
            self._warned = True
            notes.unfit.add(line.number, 0)
            return []
        sources = self._sources(line, ids, bool(prefix), notes)
        return [
            self._with_limits(source._replace(part=part, prefix=prefix))
            for part, source in enumerate(sources)
        ]

    def _with_limits(self, source: Source) -> Source:
        """A source with the limits of its output, which holds the prefix in any case.

        A forced length beyond the position table is a limit as any other: the output need not end.
        """
        pieces = len(source.ids) - 1
        if self.decode.length != "forced":
            limit = self.limit(pieces)
            return source._replace(
                limit=limit, least=min(limit, int(self.decode.min_length_ratio * pieces))
            )
        length = max(*source.columns[LENGTH], len(source.prefix))
        limit = self._in_table(length)
        return source._replace(limit=limit, least=limit, forced=limit == length)

    def _sources(
        self, line: ParallelLine, ids: list[int], has_prefix: bool, notes: Notes
    ) -> list[Source]:
        """The sources of a line that may be too long.

        Columns of words cannot be split, nor a line with a target prefix: it is refused.
        """
        text, number, pieces = line.text, line.number, len(ids) - 1
        if self.codes and pieces and ids[0] not in self.codes.values():
            notes.uncoded.add(number, pieces)
        if pieces <= self.longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                notes.long.add(number, pieces)
            return [self.source(text, ids, line.columns, number)]
        if self.decode.too_long == "truncate":
            notes.truncated.add(number, pieces)
            return [self.source(text, [*ids[: self.longest], EOS], line.columns, number)]
        unsplittable = has_prefix or line.columns or self.requirements.columns - {WORDS}
        if self.decode.too_long == "refuse" or unsplittable:
            notes.refused.add(number, pieces)
            return []
        notes.split.add(number, pieces)
        most = max(1, min(self.longest, self.longest_trained or USUAL_LENGTH))
        parts = [
            (part, self.side.ids(part)[:-1])
            for part in parts_of(text, most, lambda part: len(self.side.ids(part)) - 1)
        ]
        return [self.source(part, [*ids[:most], EOS], {}, number) for part, ids in parts]

    def _prefix(self, text: str, pieces: int) -> list[int]:
        """The ids with which the translation of so many pieces begins, without eos."""
        if not text:
            return []
        ids = self.target.ids(text)[:-1]
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            raise UnfitPrefixError(f"the model does not know the piece {piece!r}")
        if ids and not pieces:
            raise UnfitPrefixError(
                "the line of the text is empty, and so is its translation; empty both"
            )
        if len(ids) > (limit := self.limit(min(pieces, self.longest))):
            raise UnfitPrefixError(
                f"has {len(ids)} pieces, but the translation may have {limit}; shorten it, or "
                "raise decode.max_length_offset"
            )
        return ids


def parts_of(text: str, most: int, count: Callable[[str], int]) -> list[str]:
    """Cut text into parts of at most `most` pieces each, at spaces where there are some.

    `count(text)` says how many pieces a text has; a single character may have more.
    """
    pieces = count(text)
    if pieces <= most or len(text) < 2:
        return [text]
    step = -(-len(text) // -(-pieces // most))  # characters: parts of equal length
    parts, start = list[str](), 0
    while start < len(text):
        end = min(start + step, len(text))
        if end < len(text) and (space := text.rfind(" ", start + 1, end + 1)) > 0:
            end = space
        parts += parts_of(text[start:end].strip(" "), most, count)
        start = end
    return [part for part in parts if part]
