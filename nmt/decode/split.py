"""Lines in parts: by sentences, or where they are too long at spaces."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from importlib.util import find_spec
from itertools import accumulate
from typing import TypeAlias

from nmt.errors import Exit, UserError
from nmt.text.languages import short_code

UNSPACED = ("zh", "ja", "th", "lo", "km", "my", "bo")  # languages with no space between sentences
# of a list; markers such as 1. have no letter
MARKER = re.compile(r"\(?\d*([^\W\d_]|[ivx]+|[IVX]+)[.)]")
NUMBER = re.compile(r"\(?(\d{1,3})[.)]\s*")
LAST_NUMBER = re.compile(rf"(?<=\s){NUMBER.pattern}$")
CLOSING = re.compile(r"[\s.,;:!?\u2026\u3002)\]}»”“\u2019\"']*")  # signs behind a sentence
Spans: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]


def is_sentencex_installed() -> bool:
    """Whether lines can be split into sentences."""
    return find_spec("sentencex") is not None


class Splitter:
    """Splits lines, by sentences (the rules of a language are sentencex's) or at spaces.

    Parts in their order are the line itself, without the spaces between them. Tags at the beginning
    of a line (its target language, or its kind) begin each part.
    """

    def __init__(
        self,
        language: str | None,
        tags: Set[str],
        count: Callable[[str], int],
        spans: Spans = lambda text: (),
    ) -> None:
        """`language`: of the sentences; None: lines are only split at spaces.

        `count`: the number of pieces of a text; `spans`: where strings that must stay whole begin
        and end. Raises UserError (69) if sentencex is needed and not installed.
        """
        self.tags, self.count, self.spans = tags, count, spans
        if language is None:
            return
        if not is_sentencex_installed():
            raise UserError(
                "decode.split: sentencex is not installed, which splits lines into sentences; "
                "pip install 'nmt-toolkit[sentences]'",
                Exit.UNAVAILABLE,
            )
        from sentencex import segment

        self.segment, self.language = segment, short_code(language)

    def groups(self, line: str, most: int | None) -> list[str]:
        """Join consecutive sentences up to `most` pieces; None: each is alone.

        A sentence of more pieces stays whole.
        """
        tag, rest = tag_and_rest(line, self.tags)

        def text(group: Sequence[str]) -> str:
            if tag and not tag_and_rest(group[0], self.tags)[0]:
                group = [f"{tag} {group[0]}", *group[1:]]
            return "".join(group).strip()

        groups: list[list[str]] = []
        for sentence in join_fragments(self._split(rest)):
            if most and groups and self.count(text([*groups[-1], sentence])) <= most:
                groups[-1].append(sentence)
            else:
                groups.append([sentence])
        return [text(group) for group in groups] if len(groups) > 1 else [line]

    def _split(self, text: str) -> Iterator[str]:
        """The sentences of a text, with the spaces behind them.

        None ends within a span, or behind the next number of a list (in some languages an ordinal).
        """
        inside = {i for start, stop in self.spans(text) for i in range(start + 1, stop)}
        ends = accumulate(map(len, self.segment(self.language, text)))
        start, number = 0, -1
        for end in ends:
            if first := NUMBER.match(text, start):
                number = int(first[1])
            last = LAST_NUMBER.search(text, start, end)
            if last and int(last[1]) == number + 1 and end < len(text):
                end = last.start()
            if end not in inside:
                yield text[start:end]
                start = end

    def at_spaces(self, line: str, most: int) -> list[str]:
        """Parts of at most `most` pieces, or one character or span, cut at spaces if possible."""
        tag, rest = tag_and_rest(line, self.tags)
        before = f"{tag} " if tag else ""
        return [before + part for part in self._cut(rest, most, before)]

    def _cut(self, text: str, most: int, before: str) -> list[str]:
        pieces, whole = self.count(before + text), list(self.spans(text))
        if pieces <= most or len(text) < 2 or whole == [(0, len(text))]:
            return [text]
        step = -(-len(text) // -(-pieces // most))  # characters: parts of equal length
        parts, start = list[str](), 0
        while start < len(text):
            end = min(start + step, len(text))
            if end < len(text) and (space := text.rfind(" ", start + 1, end + 1)) > 0:
                end = space
            for first, stop in whole:
                if first < end < stop:
                    end = first if first > start else stop
            parts += self._cut(text[start:end].strip(" "), most, before)
            start = end
        return [part for part in parts if part]


def join_fragments(sentences: Iterable[str]) -> list[str]:
    """Join each sentence with the list markers before it and the signs around it.

    Closing signs are joined to the sentence before them, all other fragments to the next one.
    """
    joined, before = list[str](), ""
    for sentence in sentences:
        text = sentence.strip()
        if joined and not before and CLOSING.fullmatch(text):
            joined[-1] += sentence
            continue
        before += sentence
        if any(map(str.isalpha, text)) and not MARKER.fullmatch(text):
            joined.append(before)
            before = ""
    return [*joined[:-1], "".join(joined[-1:]) + before]


def tag_and_rest(line: str, tags: Set[str]) -> tuple[str, str]:
    """The tags at the beginning of a line, and the rest; no space is needed between them."""
    rest = line.lstrip()
    while tag := max(filter(rest.startswith, tags), key=len, default=""):
        rest = rest[len(tag) :].lstrip()
    return line[: len(line) - len(rest)].strip(), rest


def separator(language: str) -> str:
    """The text between two sentences of a language: a space or nothing."""
    return "" if short_code(language) in UNSPACED else " "
