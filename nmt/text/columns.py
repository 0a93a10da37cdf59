"""Columns: integers in parallel with the source text, checked, and mapped from words to pieces.

A column has a line for each line of the source. `per: word`: one integer for each word, where
words are what is between spaces in the normalised line, however the segmenter splits them.
`per: sentence`: one integer. A model gets one integer for each piece (EOS last), or one for the
whole sentence:

- each piece has the value of its word; EOS has the largest value of the line, plus one.
- `heads` counts words from 1, and 0 is a root. A model gets pieces instead: the position, from 1,
  of the first piece of the head word. So all pieces of a word share a head, and EOS is a root.
- `words`, added wherever there is a column per word, numbers the word of each piece from 0; EOS
  counts as a word. Pieces of one word have equal numbers.
- one integer for the sentence stays one integer.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from nmt.config.data import HEADS, WORDS
from nmt.errors import Exit, UserError
from nmt.text.side import Segmenter
from nmt.text.tokenizer import normalise

SENTENCE = "sentence"
_INTEGER = re.compile("[+-]?[0-9]{1,10}")
_LIMIT = 2**31 - 1  # stored in 32 bits, and EOS takes one more than the largest


class ColumnLine(NamedTuple):
    """One line of a column."""

    per: str  # word or sentence
    text: str
    where: str  # file and line, for messages


def expand(
    text: str,
    column_lines: Mapping[str, ColumnLine],
    segmenter: Segmenter,
    where: str,
    *,
    most: int | None = None,
    words: bool = False,
) -> dict[str, list[int]]:
    """Return the columns of one line of text, which is at `where`, as a model gets them.

    `most` truncates the line to so many pieces; dependents of a word beyond it become roots.
    `words` adds that column even if no other is per word. Raises UserError (65) for integers that
    do not fit the line, or pieces that do not add up to its words.
    """
    line = normalise(text, segmenter.tokenizer.normalize)
    line_words = line.split(" ") if line else []
    columns = {}
    for name, (per, integers, at) in column_lines.items():
        columns[name] = _integers(integers, len(line_words) if per != SENTENCE else None, at)
        if name == HEADS:
            _check_tree(columns[name], at)
    if not words and all(column.per == SENTENCE for column in column_lines.values()):
        return columns
    surfaces = segmenter.surfaces(segmenter.encode(text))
    word_numbers = word_indices(line_words, surfaces, where)[:most]  # [piece] number of its word
    for name, column in column_lines.items():
        if name == HEADS:
            columns[name] = _heads(columns[name], word_numbers)
        elif column.per != SENTENCE:
            values = [columns[name][word] for word in word_numbers]
            columns[name] = [*values, max(values, default=-1) + 1]
    return columns | {WORDS: [*word_numbers, max(word_numbers, default=-1) + 1]}


def word_indices(words: Sequence[str], surfaces: Sequence[str], where: str) -> list[int]:
    """Return the index, from 0, of the word that each piece belongs to by its characters.

    Raises UserError (65) unless the pieces of each word, put together, are that word.
    """
    word_numbers: list[int] = []
    number, rest = -1, ""  # characters of the current word that no piece has covered yet
    for piece in surfaces:
        if not rest and number + 1 < len(words):
            number += 1
            rest = words[number]
        if not rest.startswith(piece):
            break
        rest = rest[len(piece) :]
        word_numbers.append(number)
    if rest or len(word_numbers) < len(surfaces) or number + 1 < len(words):
        raise UserError(
            f"{where}: the pieces of the source line do not add up to its words"
            f" (see {words[number]!r}); a column per word needs segmenter.tokenizer=none here",
            Exit.DATA,
        )
    return word_numbers


def check_ranges(
    columns: Mapping[str, Sequence[int]], ranges: Mapping[str, range], where: str
) -> None:
    """Raise UserError (65) for an integer of a line that is outside the range of the model."""
    for name, allowed in ranges.items():
        for value in columns.get(name, ()):
            if value not in allowed:
                raise out_of_range(name, value, allowed, where, len(columns[name]) > 1)


def out_of_range(name: str, value: int, allowed: range, where: str, per_word: bool) -> UserError:
    """Return the error for an integer that an encoding's table has no row for."""
    eos = " (eos counts as the largest of a line plus one)" if per_word else ""
    return UserError(
        f"{where}: column {name!r} has {value}, but the encoding holds {allowed.start} to "
        f"{allowed.stop - 1}{eos}; give it a larger table, or mend the column",
        Exit.DATA,
    )


def missing(needed: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return needed columns that are neither available nor derived from the text alone."""
    return sorted(set(needed) - set(available) - {WORDS})


def _integers(text: str, count: int | None, where: str) -> list[int]:
    integers = []
    for word in text.split():
        if not _INTEGER.fullmatch(word) or abs(int(word)) >= _LIMIT:
            raise UserError(
                f"{where}: {word[:20]!a} is no integer of 32 bits; mend the file", Exit.DATA
            )
        integers.append(int(word))
    if len(integers) != (1 if count is None else count):
        expected = "a sentence has one" if count is None else f"the source line has {count} words"
        raise UserError(
            f"{where}: {len(integers)} integers, but {expected}; mend the file", Exit.DATA
        )
    return integers


def _check_tree(heads: Sequence[int], where: str) -> None:
    """Raise UserError (65) unless every word leads to a root."""
    for word, head in enumerate(heads, start=1):
        if not 0 <= head <= len(heads):
            problem = f"word {word} has the head {head}, outside of 0..{len(heads)}"
            raise _no_tree(where, problem)
    try:
        TopologicalSorter({word: [head] for word, head in enumerate(heads, start=1)}).prepare()
    except CycleError as error:
        problem = f"word {min(error.args[1])} hangs on itself, in a circle"
        raise _no_tree(where, problem) from None


def _no_tree(where: str, problem: str) -> UserError:
    return UserError(f"{where}: {problem}; heads must be trees, 0 their roots", Exit.DATA)


def _heads(heads: Sequence[int], word_numbers: Sequence[int]) -> list[int]:
    """Turn heads among words into heads among pieces; EOS is a root."""
    first: dict[int, int] = {}
    for piece, word in enumerate(word_numbers, start=1):
        first.setdefault(word, piece)
    return [*(first.get(heads[word] - 1, 0) for word in word_numbers), 0]
