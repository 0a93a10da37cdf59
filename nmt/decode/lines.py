"""From a line of text to sources that the model can translate: limits, parts and prefixes."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from nmt.config.data import WORDS, tags_of
from nmt.config.settings import Decode
from nmt.decode.engine import Engine
from nmt.decode.sources import (
    LENGTH,
    NOT_EOS,
    Line,
    Source,
    SourceReader,
    TextSides,
    within_table,
)
from nmt.decode.split import Splitter
from nmt.errors import UserError
from nmt.modeldir import USUAL_LENGTH
from nmt.text.languages import languages_of
from nmt.text.unigram import language_codes
from nmt.text.vocab import EOS, UNK

log = logging.getLogger(__name__)


class UnfitPrefixError(Exception):
    """No translation of this line can begin with its prefix."""


def windows(
    lines: Iterable[Line], size: int, has_more: Callable[[], bool] = lambda: True
) -> Iterator[list[Line]]:
    """Lines by window; a multiple of `size` ends one, as outputs are resumed there.

    So does a line after which `has_more` says that no other has arrived yet.
    """
    window: list[Line] = []
    for line in lines:
        window.append(line)
        if line.number % size == 0 or not has_more():
            yield window
            window = []
    if window:
        yield window


class LineReader(SourceReader):
    """Makes sources of lines, and notes what is unusual about them."""

    def __init__(self, sides: TextSides, decode: Decode, engine: Engine) -> None:
        """UserError for decode.split with a model that reads more than the text."""
        named = bool(decode.source_language)
        super().__init__(sides, engine, given_lengths=decode.reads_lengths, has_language=named)
        self.decode, self.engine = decode, engine
        self.longest_trained: int | None = sides.facts["longest_source"]
        needed = sorted(self.requirements.columns - {WORDS})
        if decode.split != "lines" and needed:
            raise UserError(
                f"decode.split={decode.split}: this model reads the column {needed[0]}, which "
                "belongs to whole lines; leave it at lines"
            )
        language, _ = languages_of(replace(self.settings, decode=decode))
        self.splitter = Splitter(
            language if decode.split != "lines" else None,
            {*tags_of(self.settings.data), *language_codes(self.side.vocabulary)},
            lambda text: self.source(text).pieces,
            self.side.protection.spans,
        )
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

    def read(self, line: Line) -> list[Source]:
        """One source, several if the line is split, none if its translation is left empty."""
        whole = self.source(line.text)
        try:
            prefix = self._prefix(line, whole)
        except UnfitPrefixError as error:
            if not self._warned:
                log.warning(
                    "target prefix, line %d: %s; its line is left empty", line.number, error
                )
            self._warned = True
            line.note("unfit")
            return []
        self.note(line, whole)
        parts = [self.with_columns(line, part) for part in self._parts(line, whole)]
        return [
            self._with_limits(part, prefix)._replace(part=number)
            for number, part in enumerate(parts)
        ]

    def _with_limits(self, source: Source, prefix: list[int]) -> Source:
        """Add the limits of the output, which holds the prefix.

        A forced length beyond the position table is a limit as any other: the output need not end.
        """
        if self.decode.length == "forced":
            length = max(*source.columns[LENGTH], len(prefix))
            least = limit = within_table(length, self.engine.target_limit)
            end = [EOS] if limit == length else []
        else:
            limit, end = self.limit(source.pieces), []
            least = min(limit, int(self.decode.min_length_ratio * source.pieces))
        required = [*prefix, *[NOT_EOS] * (least - len(prefix)), *end]
        return source._replace(required=required, limit=limit)

    def _parts(self, line: Line, whole: Source) -> list[Source]:
        """What a line is translated as: itself, or the parts that decode.split makes.

        A part may be too long still, and then has parts of its own. A refused line has none.
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
        """A source, or its parts where it is too long.

        Columns of words cannot be split, nor a line with a target prefix: it is refused.
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

    def _prefix(self, line: Line, source: Source) -> list[int]:
        """The ids with which the translation of a line begins, without eos."""
        if not line.target:
            return []
        text = self.side.protection.place(line.target, source.protected.strings)
        ids = self.target.ids(text)[:-1]
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            raise UnfitPrefixError(f"the model does not know the piece {piece!r}")
        if ids and not source.pieces:
            raise UnfitPrefixError(
                "the line of the text is empty, and so is its translation; empty both"
            )
        limit = self.limit(min(source.pieces, self.longest))
        advice = ", or raise decode.max_length_offset"
        if self.decode.length == "forced":  # which a prefix makes longer
            limit, advice = within_table(len(ids), self.engine.target_limit), ""
        if len(ids) > limit:
            raise UnfitPrefixError(
                f"has {len(ids)} pieces, but the translation may have {limit}; shorten it{advice}"
            )
        return ids
