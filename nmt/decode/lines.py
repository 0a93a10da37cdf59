"""From a line of text to sources that the model can translate: limits, parts and prefixes."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from nmt.config.data import WORDS, tags_of
from nmt.config.settings import Decode
from nmt.decode.engine import Engine
from nmt.decode.notes import REFUSED, UNFIT, Notes
from nmt.decode.sources import (
    LENGTH,
    NOT_EOS,
    ParallelLine,
    Source,
    SourceReader,
    TextSides,
    cut,
    within_table,
)
from nmt.decode.split import SentenceSplitter, split_behind_tags
from nmt.errors import UserError
from nmt.modeldir import USUAL_LENGTH
from nmt.text.languages import languages_of
from nmt.text.unigram import language_codes
from nmt.text.vocab import EOS, UNK

log = logging.getLogger(__name__)

Part = tuple[str, list[int]]  # a text that is translated alone, and its ids


class UnfitPrefixError(Exception):
    """No translation of this line can begin with its prefix."""


def windows(
    lines: Iterable[ParallelLine], size: int, has_more: Callable[[], bool] = lambda: True
) -> Iterator[list[ParallelLine]]:
    """Lines by window; a multiple of `size` ends one, as outputs are resumed there.

    So does a line after which `has_more` says that no other has arrived yet.
    """
    window: list[ParallelLine] = []
    for line in lines:
        window.append(line)
        if line.number % size == 0 or not has_more():
            yield window
            window = []
    if window:
        yield window


class LineReader(SourceReader):
    """Makes sources of lines, and counts the unusual ones."""

    def __init__(self, sides: TextSides, decode: Decode, engine: Engine) -> None:
        """UserError for decode.split with a model that reads more than the text."""
        language = bool(decode.source_language)
        super().__init__(sides, engine, given_lengths=decode.reads_lengths, has_language=language)
        self.decode, self.engine = decode, engine
        self.longest_trained: int | None = sides.facts["longest_source"]
        codes = language_codes(self.side.vocabulary)
        self.tags = frozenset([*tags_of(sides.settings.data), *codes])
        self.splitter: SentenceSplitter | None = None
        if decode.split != "lines":
            if needed := sorted(self.requirements.columns - {WORDS}):
                raise UserError(
                    f"decode.split={decode.split}: this model reads the column {needed[0]}, which "
                    "belongs to whole lines; leave it at lines"
                )
            source, _ = languages_of(replace(self.settings, decode=decode))
            spans = self.side.protection.spans
            self.splitter = SentenceSplitter(source, self.tags, self._pieces, spans)
        self._warned = False  # of an unfit prefix

    @property
    def longest(self) -> int:
        """The most pieces that a source may have, without eos."""
        return within_table(self.decode.max_source, self.engine.source_limit)

    @property
    def most(self) -> int:
        """The most pieces of a part: those of training, where it is known."""
        return max(1, min(self.longest, self.longest_trained or USUAL_LENGTH))

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
            notes.add(UNFIT, line.number, 0)
            return []
        self.note(line.number, ids, notes)
        return [
            self._source(line._replace(text=text), part_ids, prefix)._replace(part=part)
            for part, (text, part_ids) in enumerate(self._parts(line, ids, notes))
        ]

    def _ids(self, text: str) -> list[int]:
        return self.side.ids(self.side.protection.line(text).text)

    def _pieces(self, text: str) -> int:
        return len(self._ids(text)) - 1  # without eos

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

    def _parts(self, line: ParallelLine, ids: list[int], notes: Notes) -> list[Part]:
        """What a line is translated as: itself, or the parts that decode.split makes.

        A part may be too long still, and then has parts of its own. A refused line has none.
        """
        pieces, auto = len(ids) - 1, self.decode.split == "auto"
        if self.splitter is None or (auto and pieces <= self.most):
            return self._within_limit(line, ids, notes)
        groups = self.splitter.groups(line.text, self.most if auto else None)
        parts: list[Part] = []
        for text in groups:
            of_group = self._within_limit(line._replace(text=text), self._ids(text), notes)
            if not of_group:  # refused: half a translation would look like a whole one
                return []
            parts += of_group
        if len(groups) > 1:
            notes.add("sentences", line.number, pieces)
        return parts

    def _within_limit(self, line: ParallelLine, ids: list[int], notes: Notes) -> list[Part]:
        """A text, or its parts where it is too long.

        Columns of words cannot be split, nor a line with a target prefix: it is refused.
        """
        number, pieces = line.number, len(ids) - 1
        if pieces <= self.longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                notes.add("long", number, pieces)
            return [(line.text, ids)]
        if self.decode.too_long == "truncate":
            notes.add("truncated", number, pieces)
            return [(line.text, cut(ids, self.longest + 1))]
        if self.decode.too_long == "refuse" or line.target.strip() or line.columns:
            notes.add(REFUSED, number, pieces)
            return []
        notes.add("split", number, pieces)
        spans = self.side.protection.spans
        parts = split_behind_tags(line.text, self.tags, self.most, self._pieces, spans)
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
