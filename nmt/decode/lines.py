"""From a line of text to sources that the model can translate: limits, parts and prefixes."""

import logging
from dataclasses import replace

from nmt.config.data import WORDS, tags_of
from nmt.config.settings import Decode
from nmt.decode.engine import Engine
from nmt.decode.notes import Notes
from nmt.decode.parts import SentenceSplitter, tagged_parts
from nmt.decode.sources import LENGTH, NOT_EOS, Source, SourceReader, TextSides, cut, within_table
from nmt.decode.streams import ParallelLine
from nmt.errors import UserError
from nmt.modeldir import USUAL_LENGTH
from nmt.text.languages import languages_of
from nmt.text.unigram import language_codes
from nmt.text.vocab import EOS, UNK

log = logging.getLogger(__name__)


class UnfitPrefixError(Exception):
    """No translation of this line can begin with its prefix."""


class LineReader(SourceReader):
    """Makes sources of lines, and counts the unusual ones."""

    def __init__(self, sides: TextSides, decode: Decode, engine: Engine) -> None:
        language = bool(decode.source_language)
        super().__init__(sides, engine, given_lengths=decode.reads_lengths, has_language=language)
        self.decode, self.engine = decode, engine
        self.longest_trained: int | None = sides.facts["longest_source"]
        codes = language_codes(self.side.vocabulary)
        self.tags = frozenset([*tags_of(sides.settings.data), *codes])
        self.splitter = None if decode.split == "lines" else self._splitter()
        self._warned = False  # of an unfit prefix

    def _splitter(self) -> SentenceSplitter:
        """What splits lines into sentences; UserError for models that read more than the text."""
        if needed := sorted(self.requirements.columns - {WORDS}):
            raise UserError(
                f"decode.split={self.decode.split}: this model reads the column {needed[0]}, which "
                "belongs to whole lines; leave it at lines"
            )
        language, _ = languages_of(replace(self.settings, decode=self.decode))
        return SentenceSplitter(language, self.tags, self._pieces, self.side.protection.spans)

    def _pieces(self, text: str) -> int:
        """How many pieces a text has, without eos."""
        return len(self._ids(text)) - 1

    def _ids(self, text: str) -> list[int]:
        return self.side.ids(self.side.protection.line(text).text)

    @property
    def longest(self) -> int:
        """The most pieces that a source may have, without eos."""
        return within_table(self.decode.max_source, self.engine.source_limit)

    def limit(self, pieces: int) -> int:
        """The most pieces of the translation of so many; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        return within_table(limit, self.engine.target_limit)

    def read(self, line: ParallelLine, notes: Notes) -> list[Source]:
        """One source, several if the line is split, none if its translation is left empty."""
        ids = self._ids(line.text)
        try:
            prefix = self._prefix(line, len(ids) - 1)
        except UnfitPrefixError as error:
            if not self._warned:
                log.warning(
                    "target prefix, line %d: %s; its line is left empty", line.number, error
                )
            self._warned = True
            notes.unfit.add(line.number, 0)
            return []
        parts = self._parts(line, ids, notes)
        return [
            self._source(line._replace(text=text), part_ids, prefix)._replace(part=part)
            for part, (text, part_ids) in enumerate(parts)
        ]

    def _source(self, line: ParallelLine, ids: list[int], prefix: list[int]) -> Source:
        """A line of these ids, or a part, with the limits of its output, which holds the prefix.

        A forced length beyond the position table is a limit as any other: the output need not end.
        """
        source = self.source(line, self.side.protection.line(line.text), ids)
        if self.decode.length == "forced":
            length = max(*source.columns[LENGTH], len(prefix))
            least = limit = within_table(length, self.engine.target_limit)
            end = [EOS] if limit == length else []
        else:
            limit, end = self.limit(len(ids) - 1), []
            least = min(limit, int(self.decode.min_length_ratio * (len(ids) - 1)))
        required = [*prefix, *[NOT_EOS] * (least - len(prefix)), *end]
        return source._replace(required=required, limit=limit)

    def _parts(
        self, line: ParallelLine, ids: list[int], notes: Notes
    ) -> list[tuple[str, list[int]]]:
        """The texts that a line is translated as, with their ids: the line itself, or its parts.

        decode.split makes parts, and so does a length above the limit. A refused line has none.
        """
        number, pieces = line.number, len(ids) - 1
        self.note(number, ids, notes)
        if self.splitter is None or (self.decode.split == "auto" and pieces <= self.most):
            return self._within_limit(line, ids, notes)
        groups = self.splitter.groups(line.text, self.most if self.decode.split == "auto" else None)
        parts: list[tuple[str, list[int]]] = []
        for text in groups:
            of_group = self._within_limit(line._replace(text=text), self._ids(text), notes)
            if not of_group:  # refused: half a translation would look like a whole one
                return []
            parts += of_group
        if len(groups) > 1:
            notes.sentences.add(number, pieces)
        return parts

    @property
    def most(self) -> int:
        """The most pieces of a part: those of training, where it is known."""
        return max(1, min(self.longest, self.longest_trained or USUAL_LENGTH))

    def _within_limit(
        self, line: ParallelLine, ids: list[int], notes: Notes
    ) -> list[tuple[str, list[int]]]:
        """A text with its ids, or its parts where it is too long.

        Columns of words cannot be split, nor a line with a target prefix: it is refused.
        """
        number, pieces = line.number, len(ids) - 1
        if pieces <= self.longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                notes.long.add(number, pieces)
            return [(line.text, ids)]
        if self.decode.too_long == "truncate":
            notes.truncated.add(number, pieces)
            return [(line.text, cut(ids, self.longest + 1))]
        if self.decode.too_long == "refuse" or line.target.strip() or line.columns:
            notes.refused.add(number, pieces)
            return []
        notes.split.add(number, pieces)
        parts = tagged_parts(
            line.text, self.tags, self.most, self._pieces, self.side.protection.spans
        )
        return [(text, cut(self._ids(text), self.most + 1)) for text in parts]

    def _prefix(self, line: ParallelLine, pieces: int) -> list[int]:
        """The ids with which the translation of a line of so many pieces begins, without eos."""
        if not line.target:
            return []
        protection = self.side.protection
        text = protection.place(line.target, protection.line(line.text).strings)
        ids = self.target.ids(text)[:-1]
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            raise UnfitPrefixError(f"the model does not know the piece {piece!r}")
        if ids and not pieces:
            raise UnfitPrefixError(
                "the line of the text is empty, and so is its translation; empty both"
            )
        limit, advice = self.limit(min(pieces, self.longest)), ", or raise decode.max_length_offset"
        if self.decode.length == "forced":  # which a prefix makes longer
            limit, advice = within_table(len(ids), self.engine.target_limit), ""
        if len(ids) > limit:
            raise UnfitPrefixError(
                f"has {len(ids)} pieces, but the translation may have {limit}; shorten it{advice}"
            )
        return ids
