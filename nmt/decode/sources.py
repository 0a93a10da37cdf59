"""A line of source text, and the columns beside it, in the numbers that a model reads."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from nmt.config import WORDS, Settings, columns_of
from nmt.data.columns import ColumnLine, check_ranges, expand, missing
from nmt.data.segmenter import Segmenter
from nmt.errors import UserError

LENGTH = "length"  # the column of desired lengths in pieces, for decode.target_length=given


class Source(NamedTuple):
    """A line as the model reads it."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of a line that is translated in parts, from 0
    prefix: Sequence[int] = ()  # ids with which the output begins, eos apart


class ColumnsRead(Protocol):
    """What tells which columns it reads: a model, or an engine."""

    @property
    def columns(self) -> Set[str]:
        """Their names."""

    @property
    def column_ranges(self) -> Mapping[str, range]:
        """The integers that each may hold, by name; those without an entry: any."""


class SourceReader:
    """Knows which columns a trained model reads beside the text, and numbers them."""

    def __init__(
        self,
        segmenter: Segmenter,
        settings: Settings,
        reads: ColumnsRead,
        given_lengths: bool = False,
    ) -> None:
        """`given_lengths`: each line comes with the desired length of its translation."""
        self.segmenter, self.settings, self.reads = segmenter, settings, reads
        self.given_lengths = given_lengths

    def kinds(self, given: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Whether each column has integers per word or per sentence.

        Raises UserError for a column that is missing, or that the model does not know.
        """
        needed = self.reads.columns | ({LENGTH} if self.given_lengths else set())
        if absent := missing(needed, given):
            raise UserError(
                f"column {absent[0]}: this model reads it beside the text; "
                f"give --columns {','.join(f'{name}=FILE' for name in absent)}"
            )
        known = columns_of(self.settings.data) if given else {}
        known.pop(WORDS, None)
        if self.given_lengths:
            known[LENGTH] = "sentence"
        if odd := sorted(set(given) - set(known)):
            raise UserError(
                f"column {odd[0]}: unknown to this model; its corpus had "
                f"{', '.join(known) or 'none'}"
            )
        return known

    def read(
        self, text: str, ids: list[int], beside: dict[str, ColumnLine], line: int, part: int = 0
    ) -> Source:
        """A text of these ids with what stands beside it; UserError (65) if that does not fit."""
        words = WORDS in self.reads.columns
        if not beside and not words:
            return Source(ids, {}, line, part)
        where = f"line {line}"
        columns = expand(text, beside, self.segmenter, where, most=len(ids) - 1, words=words)
        check_ranges(columns, self.reads.column_ranges, where)
        return Source(ids, columns, line, part)
