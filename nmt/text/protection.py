"""Strings that translation must not change, such as addresses: a model sees placeholders for them.

In training, a string that a pattern finds on both sides of a pair becomes the same placeholder;
in translation each one does, and the placeholders of the output become the strings again.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.config.data import Data, symbols_of
from nmt.errors import Exit, UserError
from nmt.text.lines import read_text
from nmt.text.tokenizer import Tokenizer, warn_of_unknown
from nmt.text.vocab import damaged

PLACEHOLDERS = tuple(f"<x{number}>" for number in range(1, 10))  # user symbols, in text `< x1>`
NOT_COMPILED = (re.error, OverflowError, RecursionError)
_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")
_NO_SPACES = "\u0e00"  # scripts from here on, as Thai and Chinese, have no spaces between words


class ProtectedLine(NamedTuple):
    """A line in which placeholders stand for strings."""

    text: str
    strings: tuple[str, ...]  # those of the first placeholders

    def restored(self, output: str) -> str:
        """Put the strings in place of the placeholders of a translation; drop those of none.

        Where this line has no space beside a string, the translation has none, either, before or
        after a character of the same kind: `(URL)` and `<b>word</b>` come back as such. Of a
        string that occurs several times, the same holds one after the other.
        """
        ends = dict[str, int]()
        done, *rest = _PLACEHOLDER.split(output)
        for placeholder, text in zip(rest[::2], rest[1::2], strict=True):
            number = PLACEHOLDERS.index(placeholder)
            if number >= len(self.strings):  # the model made it up
                done = done.rstrip(" ") + text
                continue
            start = self.text.find(placeholder, ends.get(placeholder, 0))
            start = start if start >= 0 else self.text.rfind(placeholder)
            end = ends[placeholder] = start + len(placeholder)
            before, after = self.text[:start][-1:], self.text[end : end + 1]
            if done.endswith(" ") and _alike(before, done[-2:-1]):
                done = done[:-1]
            follows = text[1:] if text.startswith(" ") and _alike(after, text[1:2]) else text
            done += self.strings[number] + follows
        return done.strip(" ")

    def count_lost(self, output: str) -> int:
        """How many placeholders of this line a translation lacks."""
        used = PLACEHOLDERS[: len(self.strings)]
        return sum(max(0, self.text.count(p) - output.count(p)) for p in used)


def _alike(beside: str, other: str) -> bool:
    """Whether a character touches a string, and both are letters or digits, or neither is."""
    is_word = beside.isalnum()
    spaced = not beside.strip() or (is_word and beside >= _NO_SPACES)
    return not spaced and is_word == other.isalnum()


class Protection:
    """Finds the strings of lines that patterns match."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        try:
            self.patterns = [re.compile(pattern) for pattern in tokenizer.protected]
        except (*NOT_COMPILED, TypeError):  # read_patterns has none of them
            raise damaged("tokenizer.protected", "expected patterns") from None
        self._symbols = {*tokenizer.symbols} - {*PLACEHOLDERS}  # are pieces by themselves

    def line(self, text: str, other: str | None = None) -> ProtectedLine:
        """Put placeholders into a line, for nine strings at most; `other` has them, too."""
        known = None if other is None else {*self._strings(other)}
        found = (s for s in self._strings(text) if known is None or s in known)
        strings = tuple(dict.fromkeys(found))[: len(PLACEHOLDERS)]
        return ProtectedLine(self.place(text, strings), strings)

    def pair(self, source: str, target: str) -> tuple[str, str]:
        """Put placeholders into a line and its translation, for strings that are in both."""
        if not self.patterns:
            return source, target
        line = self.line(source, target)
        return line.text, self.place(target, line.strings)

    def place(self, text: str, strings: Sequence[str]) -> str:
        """Put the placeholders of strings into a text."""
        if not self.patterns:
            return text
        placeholders = dict(zip(strings, PLACEHOLDERS, strict=False))
        parts, end = list[str](), 0
        for start, stop in self.spans(text):
            if text[start:stop] in placeholders:
                parts += [_as_text(text[end:start]), placeholders[text[start:stop]]]
                end = stop
        return "".join([*parts, _as_text(text[end:])])

    def _strings(self, text: str) -> Iterator[str]:
        for start, stop in self.spans(text):
            yield text[start:stop]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where strings are, from left to right; of those that overlap, the first and longest."""
        spans = {match.span() for pattern in self.patterns for match in pattern.finditer(text)}
        end = 0
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start >= end and text[start:stop].strip() and text[start:stop] not in self._symbols:
                yield start, stop
                end = stop


def _as_text(text: str) -> str:
    """A text whose own `<x1>` is no placeholder."""
    return _PLACEHOLDER.sub(lambda match: f"< {match[0][1:]}", text)


def read_patterns(path: str | None) -> list[str]:
    """Read data.protected; UserError: 66 if it is missing, 65 for what is no pattern."""
    patterns = list[str]()
    lines = read_text(Path(path), "name a file of patterns: data.protected") if path else []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            if re.search(line, ""):
                raise re.error("matches the empty string")
        except NOT_COMPILED as error:
            where = f"{path}:{number}: {line}: no regular expression for data.protected"
            raise UserError(f"{where}: {error}; mend it", Exit.DATA) from None
        patterns.append(line)
    if path and not patterns:
        raise UserError(f"{path}: no pattern; write one, or set data.protected=null", Exit.DATA)
    return list(dict.fromkeys(patterns))


def tokenizers_of(data: Data, kind: str) -> list[Tokenizer]:
    """The tokenizers of both sides of a corpus; raises what `read_patterns` does."""
    languages = (data.source_language, data.target_language)
    if kind == "moses":
        warn_of_unknown(languages, ". segmenter.tokenizer=none keeps the text as it is")
    patterns, symbols = read_patterns(data.protected), symbols_of(data)
    if patterns and (taken := [*filter(PLACEHOLDERS.__contains__, symbols)]):
        raise UserError(f"data.user_symbols, tags: {taken[0]} stands for strings of data.protected")
    symbols += PLACEHOLDERS if patterns else ()
    return [Tokenizer(data.normalize, kind, code, symbols, patterns) for code in languages]
