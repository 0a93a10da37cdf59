"""Strings that translation must not change, such as addresses: a model sees placeholders for them.

In training, a string that a pattern finds on both sides of a pair becomes the same placeholder;
in translation each one does, and the placeholders of the output become the strings again.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nmt.config.data import Data, Segmentation, symbols_of
from nmt.errors import Exit, UserError
from nmt.text.lines import read_text
from nmt.text.tokenizer import Tokenizer, warn_of_unknown
from nmt.text.vocab import damage_error

PLACEHOLDERS = tuple(f"<x{number}>" for number in range(1, 10))  # user symbols, in text `< x1>`
NOT_COMPILED = (re.error, OverflowError, RecursionError)
_PLACEHOLDER = re.compile(f" ?({'|'.join(PLACEHOLDERS)})")
_LOOKALIKE = re.compile("<(?=x[1-9]>)")  # text that looks like a placeholder
# Thai to Burmese, Khmer, Chinese, Japanese and Korean, which may have no space next to a string.
_NO_SPACES = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3000-\uffef\U00020000-\U0003ffff]")
_OPENING = {*"([{\uff08「『【《"}  # marks that touch what follows, in every script
_CLOSING = {*".,;:!?)]}。、\uff0c\uff1b\uff1a\uff01\uff1f\uff09」』】》"}


class ProtectedLine(NamedTuple):
    """A line in which placeholders stand for strings."""

    text: str
    strings: dict[str, str]  # by their placeholders

    def restore(self, output: str) -> str:
        """Replace the placeholders of a translation by their strings; drop any that have none.

        If this line has no space next to a string, neither has the translation next to a character
        of the same kind: `(URL)` and `<b>word</b>` stay as they are. Nor has it a space before
        punctuation. Several occurrences of a string are matched in their order.
        """
        output = _PLACEHOLDER.sub(lambda m: m[0] if m[1] in self.strings else "", output)
        done, at, ends = "", 0, dict.fromkeys(self.strings, 0)
        for match in _PLACEHOLDER.finditer(output):
            placeholder, (first, last) = match[1], match.span(1)
            start = self.text.find(placeholder, ends[placeholder])
            start = start if start >= 0 else self.text.rfind(placeholder)
            end = ends[placeholder] = start + len(placeholder)
            first -= _touches(self.text[:start][:-3:-1], output[:first][:-3:-1], _OPENING)
            last += _touches(self.text[end : end + 2], output[last : last + 2], _CLOSING)
            done += output[at:first] + self.strings[placeholder]
            at = last
        return (done + output[at:]).strip(" ")

    def count_lost(self, output: str) -> int:
        """Count the placeholders of this line that a translation lacks."""
        return sum(max(0, self.text.count(p) - output.count(p)) for p in self.strings)


def _touches(source: str, output: str, marks: set[str]) -> bool:
    """Whether to remove the space next to a string; both are two characters, nearest first."""
    near, other = source[:1], output[1:]
    unknown = not near.strip() or (near not in marks and _NO_SPACES.match(near))
    fits = other in marks or (not unknown and near.isalnum() == other.isalnum())
    return output.startswith(" ") and output != source and fits


class Protection:
    """Finds the strings of lines that patterns match."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        try:
            self.patterns = [re.compile(pattern) for pattern in tokenizer.protected]
        except (*NOT_COMPILED, TypeError):  # read_patterns has none of them
            raise damage_error("tokenizer.protected", "expected patterns") from None
        self._symbols = {*tokenizer.symbols} - {*PLACEHOLDERS}  # are pieces by themselves

    def protect(self, text: str, other: str | None = None) -> ProtectedLine:
        """Put placeholders into a line, for at most nine strings that `other` has as well."""
        strings_here = self._strings(text)
        strings_there = self._strings(other) if strings_here and other is not None else strings_here
        both = (string for string in strings_here if string in strings_there)
        strings = dict(zip(PLACEHOLDERS, both, strict=False))
        return ProtectedLine(self.insert_placeholders(text, strings), strings)

    def protect_pair(self, source: str, target: str) -> tuple[str, str]:
        """Put placeholders into a line and its translation, for strings that are in both."""
        line = self.protect(source, target)
        return line.text, self.insert_placeholders(target, line.strings)

    def insert_placeholders(self, text: str, strings: Mapping[str, str]) -> str:
        if not self.patterns:
            return text
        placeholders = {string: placeholder for placeholder, string in strings.items()}
        parts, end = list[str](), 0
        for start, stop in self.spans(text) if strings else ():
            if text[start:stop] in placeholders:
                parts += [_LOOKALIKE.sub("< ", text[end:start]), placeholders[text[start:stop]]]
                end = stop
        return "".join([*parts, _LOOKALIKE.sub("< ", text[end:])])

    def _strings(self, text: str) -> dict[str, None]:
        return dict.fromkeys(text[start:stop] for start, stop in self.spans(text))

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The spans of strings from left to right; of overlapping ones, the first and longest."""
        matches = [match for p in self.patterns if (match := self._search(p, text, 0))]
        while matches:
            start, end = min((m.span() for m in matches), key=lambda span: (span[0], -span[1]))
            yield start, end
            nexts = (m if m.start() >= end else self._search(m.re, text, end) for m in matches)
            matches = [match for match in nexts if match]

    def _search(self, pattern: re.Pattern[str], text: str, start: int) -> re.Match[str] | None:
        matches = pattern.finditer(text, start)
        return next((m for m in matches if m[0].strip() and m[0] not in self._symbols), None)


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


def tokenizers_of(data: Data, choice: Segmentation) -> list[Tokenizer]:
    """The tokenizers of both sides of a corpus; raises what `read_patterns` does."""
    languages = (data.source_language, data.target_language)
    if choice.tokenizer == "moses":
        warn_of_unknown(languages, ". segmenter.tokenizer=none keeps the text as it is")
    patterns, symbols = read_patterns(data.protected), [*symbols_of(data)]
    if patterns and (taken := [*filter(PLACEHOLDERS.__contains__, symbols)]):
        raise UserError(f"data.user_symbols, tags: {taken[0]} stands for strings of data.protected")
    symbols += PLACEHOLDERS if patterns else ()
    return [
        Tokenizer(data.normalize, choice.tokenizer, code, symbols, patterns) for code in languages
    ]
