"""Aligns the words of a line with the words of its translation, by cross-attention.

Words are what white space separates, in the line as the user wrote it and in its translation.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.decode.engine import Source, Weights
from nmt.text.side import Side
from nmt.text.tokenizer import normalise
from nmt.text.vocab import END


class Alignment(NamedTuple):
    """A line and its translation, with the attention between their pieces and words."""

    source: list[str]  # pieces, with END behind the last; of a line in parts behind each part
    target: list[str]  # likewise
    attention: Weights  # [target, source] of these pieces; a row is of the step that predicts it
    words: Weights  # [target word, source word + 1]; the last column is the end of the source

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Source word and target word, from 0: for each target word the one with most weight."""
        words = self.words[:, :-1]
        return sorted((int(row.argmax()), target) for target, row in enumerate(words) if row.any())


def align(
    line: str, translation: str, parts: Sequence[tuple[Source, Weights]], source: Side, target: Side
) -> Alignment:
    """Combine the attention of separately translated parts, and sum it from pieces to words.

    A word of the translation has the mean of its pieces.
    """
    heights, widths = ([attention.shape[axis] for _, attention in parts] for axis in (0, 1))
    attention = np.zeros((sum(heights), sum(widths)), np.float32)
    to_source = np.zeros((sum(widths), len(line.split()) + 1), np.float32)  # [piece, word or end]
    pieces, outputs, surfaces = list[str](), list[str](), list[str]()
    row = column = 0
    numbers = _word_numbers(line, [pair.text for pair, _ in parts])
    for (pair, part_attention), word_numbers in zip(parts, numbers, strict=True):
        text, strings = pair.protected
        inputs = source.segmenter.encode(text)[: len(pair.ids) - 1]
        output = target.vocabulary.pieces(pair.target)
        pieces += [*inputs, END]
        outputs += [*output, END]
        surfaces += _surfaces(target, output, strings)
        height, width = part_attention.shape
        attention[row : row + height, column : column + width] = part_attention
        row, column = row + height, column + width
        shares = word_shares(source, _surfaces(source, inputs, strings), pair.text.split())
        np.add.at(to_source[column - width : column - 1].T, word_numbers, shares.T)
        to_source[column - 1, -1] = 1
    to_target = word_shares(target, surfaces, translation.split())
    to_target /= np.maximum(to_target.sum(0), 1e-9)
    without_ends = np.delete(attention, np.cumsum(heights, dtype=int) - 1, 0)
    return Alignment(pieces, outputs, attention, to_target.T @ without_ends @ to_source)


def _word_numbers(line: str, parts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
    """The number in the line of each word of each part.

    Parts have the line's characters in their order, but may lack some; each may repeat tags at its
    beginning. Raises ValueError for any other part.
    """
    characters, owners = "".join(line.split()), _owners(line.split())
    start = 0
    for part in parts:
        text = "".join(part.split())
        tags = [tag for tag in range(len(text) + 1) if characters.rfind(text[:tag], 0, start) >= 0]
        matches = [(characters.find(text[tag:], start), tag) for tag in tags]
        if not (matches := [match for match in matches if match[0] >= 0]):
            raise ValueError(f"{part!r}: not in the line behind the parts before it")
        first, tag = min(matches, key=lambda match: (match[0] > start, match[1]))
        at = characters.rfind(text[:tag], 0, start)
        start = first + len(text) - tag
        part_owners = np.concatenate([owners[at : at + tag], owners[first:start]])
        firsts = accumulate(map(len, part.split()), initial=0)
        yield part_owners[list(firsts)[:-1]]


def _owners(words: Sequence[str]) -> NDArray[np.int64]:
    """The number of the word of each of their characters."""
    return np.repeat(np.arange(len(words)), [len(word) for word in words])


def _surfaces(side: Side, pieces: Sequence[str], strings: Mapping[str, str]) -> list[str]:
    """The characters of each piece; a placeholder has the characters of its string."""
    protected = {placeholder: _characters(side, s) for placeholder, s in strings.items()}
    surfaces = side.segmenter.surfaces(pieces)
    return [protected.get(p, surface) for p, surface in zip(pieces, surfaces, strict=True)]


def _characters(side: Side, text: str) -> str:
    """The characters of a text as its pieces have them, without spaces."""
    return normalise(text, side.segmenter.tokenizer.normalize).replace(" ", "")


def word_shares(side: Side, surfaces: Sequence[str], words: Sequence[str]) -> Weights:
    """[piece, word]: the share of each piece's characters that each word of the text has.

    A piece without characters counts as the first character of the next one.
    """
    words = [_characters(side, word) for word in words]
    indices, owners = _match("".join(surfaces), "".join(words)), _owners(words)
    shares = np.zeros((len(surfaces), len(words)), np.float32)
    starts = accumulate(map(len, surfaces), initial=0)
    for piece, (surface, start) in enumerate(zip(surfaces, starts, strict=False)):
        piece_indices = [i for i in indices[start : start + max(1, len(surface))] if i >= 0]
        np.add.at(shares[piece], owners[piece_indices], 1 / max(1, len(piece_indices)))
    return shares


def _match(characters: str, text: str) -> list[int]:
    """The index in the text of each character of its pieces; -1: it is not there.

    Characters that differ are matched to the text between the nearest equal ones.
    """
    if text.startswith(characters):
        return list(range(len(characters)))
    indices = [-1] * len(characters)
    matcher = SequenceMatcher(None, characters, text, autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        if last > first:
            for i in range(start, end):
                indices[i] = first + (i - start) * (last - first) // (end - start)
    return indices
