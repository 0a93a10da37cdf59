"""Inputs of the second pass: sources, translations and columns as ids, batched by length."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nmt.config import WORDS, columns_of
from nmt.data.columns import ColumnLine, expand, missing
from nmt.data.grouping import by_length
from nmt.data.vocab import BOS, EOS
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained


class ModelInput(NamedTuple):
    """A sentence as the model reads it."""

    source: list[int]  # ends in EOS
    target: list[int]  # BOS and the pieces
    columns: dict[str, list[int]]


def model_input(
    trained: Trained,
    source: str,
    pieces: list[str],
    hypothesis: str,
    column_lines: dict[str, ColumnLine],
) -> ModelInput:
    """Number both sides, cut to what the encodings hold, and the columns of the source."""
    model, ids = trained.model, trained.source.vocabulary.ids(pieces)
    target = [BOS, *trained.target.ids(hypothesis)[:-1]]
    if model.source_limit is not None and len(ids) > model.source_limit:
        ids = [*ids[: model.source_limit - 1], EOS]
    columns: dict[str, list[int]] = {}
    words = WORDS in model.columns
    if column_lines or words:
        segmenter, most = trained.source.segmenter, len(ids) - 1
        columns = expand(
            source, column_lines, segmenter, f"source {source!r}", most=most, words=words
        )
    return ModelInput(ids, target[: model.target_limit], columns)


def batches(rows: Sequence[ModelInput], tokens: int) -> Iterator[list[int]]:
    """Places of sentences that are not empty, alike in length, the longest first."""
    places = [place for place, row in enumerate(rows) if len(row.source) > 1]
    lengths = [max(len(rows[place].source), len(rows[place].target)) for place in places]
    for group in by_length(lengths, tokens):
        yield [places[i] for i in group]


def columns_by_line(
    trained: Trained, columns: Mapping[str, Sequence[str]], lines: int
) -> list[dict[str, ColumnLine]]:
    """The columns parallel to each source, of those that the model reads.

    Raises UserError: 2 where one is missing, 65 where one has not as many lines as the text.
    """
    wanted = trained.model.columns
    if absent := missing(wanted, columns):
        raise UserError(
            f"column {absent[0]}: this model reads it beside the text, and its attention "
            "cannot be recorded without; give its file"
        )
    rows: list[dict[str, ColumnLine]] = [{} for _ in range(lines)]
    for name in sorted(wanted - {WORDS}):
        if len(columns[name]) != lines:
            raise UserError(
                f"column {name}: {len(columns[name])} lines, but the text has {lines}; "
                "the two must be parallel",
                Exit.DATA,
            )
        per = columns_of(trained.settings.data)[name]
        for number, (row, text) in enumerate(zip(rows, columns[name], strict=True), 1):
            row[name] = ColumnLine(per, text, f"column {name}, line {number}")
    return rows
