"""Lines that were joined from sentences, where a tokenizer may read them otherwise than alone.

Moses keeps a full stop on its word where a small letter or a digit follows, as behind an
abbreviation: so it does in a joined line whose second sentence begins with one. The model then
meets pieces that hardly a line of its training has, and its scores tell of that, too.
"""

from collections.abc import Sequence

from nmt.data.segmenter import Segmenter
from nmt.data.tokenizer import Tokenizer


class JoinedLine(str):
    """A joined line that knows its sentences; `pieces_of` segments each of them apart."""

    sentences: list[str]


def joined_line(line: str, sentences: list[str]) -> JoinedLine:
    """A line that knows its sentences."""
    known = JoinedLine(line)
    known.sentences = sentences
    return known


def pieces_of(segmenter: Segmenter, line: str) -> list[str]:
    """The pieces of a line; of a JoinedLine, those of its sentences, one after the other."""
    sentences = line.sentences if isinstance(line, JoinedLine) else [line]
    return [piece for sentence in sentences for piece in segmenter.encode(sentence)]


def otherwise(
    lines: Sequence[str], sentences: Sequence[Sequence[str]], language: str
) -> list[bool]:
    """Of each line, whether Moses makes other words of it than of its sentences."""
    tokenizer = Tokenizer("nfc", "moses", language)
    alone = iter(tokenizer.lines([sentence for line in sentences for sentence in line]))
    return [
        whole.split() != [word for _ in each for word in next(alone).split()]
        for whole, each in zip(tokenizer.lines(lines), sentences, strict=True)
    ]
