"""Moses tokenisation by sacremoses, which is called for each word type and not for each line.

What is between two spaces becomes the same words wherever it occurs, with few exceptions:

- a full stop at its end looks at the next character: a lower-case letter or a digit may keep it;
- a comma or an apostrophe at an end looks at the character next to it: a space, or none at the
  end of the line;
- of two apostrophes around one space, only the first sees the space: such lines are not split.

So words are cached with as much of their context as they look at, and new ones are tokenised many
at a time, with marks between them that represent the context.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from sacremoses import MosesTokenizer

CACHED = 2**18  # words
LONG = 64  # characters; a longer word is not cached
AT_ONCE = 1000  # words tokenised in one call
OTHER, DIGIT, LOWER = "X", "1", "x"  # what the next word begins with
START, END = "^", "$"  # of the line


class Moses(MosesTokenizer):  # type: ignore[misc]
    """The tokenizer of one language, for lines that are normalised: the same words, sooner."""

    _lower = frozenset(MosesTokenizer.IsLower)

    NONBREAKING_PREFIXES: Collection[str]
    NUMERIC_ONLY_PREFIXES: Collection[str]
    PAD_NOT_ISALNUM: tuple[re.Pattern[str], str]

    def __init__(self, lang: str) -> None:
        super().__init__(lang=lang)
        # sacremoses makes sets of all letters again for each word that ends in a full stop
        self._letters = frozenset(self.IsAlpha)
        self.NONBREAKING_PREFIXES = frozenset(self.NONBREAKING_PREFIXES)
        self.NUMERIC_ONLY_PREFIXES = frozenset(self.NUMERIC_ONLY_PREFIXES)
        # so large a set as all of Chinese is searched one by one, but ranges of it are not
        pattern, padded = self.PAD_NOT_ISALNUM
        ranges = _ranges(self.IsAlnum)
        self.PAD_NOT_ISALNUM = re.compile(pattern.pattern.replace(self.IsAlnum, ranges)), padded
        self._plain = re.compile(f"[{ranges}-]+")  # no rule concerns these
        self._known = {"": ""}  # word, and context after a space -> its tokens

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Tokenise lines that have single spaces and no other white space; so has the result."""
        if len(self._known) > CACHED:
            self._known = {"": ""}
        known, rows = self._known, [line.split(" ") for line in lines]
        types = set(chain.from_iterable(rows)).difference(known)
        in_context = set(filter(_depends_on_context, types))
        keys = [
            [self._key(words, i) if word in in_context else word for i, word in enumerate(words)]
            for words in rows
        ]
        new = set(chain.from_iterable(keys)).difference(known)
        known.update(self._tokenised(new))
        tokenised = [
            self._whole(line) if "' '" in line else " ".join(map(known.__getitem__, row))
            for line, row in zip(lines, keys, strict=True)
        ]
        for key in new:
            if len(key) > LONG:
                del known[key]
        return tokenised

    def islower(self, text: str) -> bool:
        """Return whether all characters are lower-case letters, as sacremoses does."""
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        """Return whether one of the characters is a letter, as sacremoses does."""
        return not self._letters.isdisjoint(text)

    def _key(self, words: Sequence[str], i: int) -> str:
        """Return a word that depends on its context with that context, before and after it."""
        word, after = words[i], words[i + 1][0] if i + 1 < len(words) else None
        left = START if i == 0 and word[0] in ",'" else LOWER
        if word[-1] != ".":
            right = END if after is None and word[-1] in ",'" else LOWER
        elif after is None:
            right = OTHER  # which is the same to a full stop
        else:
            right = DIGIT if after in "0123456789" else LOWER if after in self._lower else OTHER
        return f"{word} {left}{right}"

    def _tokenised(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the tokens of each key: a word, perhaps with a space and two signs of context."""
        tokens_of: dict[str, str] = {}
        by_mark: dict[str, list[str]] = {OTHER: [], DIGIT: [], LOWER: []}
        for key in keys:
            if self._plain.fullmatch(key) and "MULTI" not in key:  # its own sign for full stops
                tokens_of[key] = key
                continue
            word, _, context = key.partition(" ")
            left, right = context[:1] or LOWER, context[1:] or LOWER
            if left == START or right == END:
                before, after = ([] if end in (START, END) else [end] for end in (left, right))
                words = self._whole(" ".join([*before, word, *after])).split(" ")
                tokens_of[key] = " ".join(words[len(before) : len(words) - len(after)])
            else:
                by_mark[right].append(key)
        for mark, group in by_mark.items():
            for start in range(0, len(group), AT_ONCE):
                part = group[start : start + AT_ONCE]
                tokens_of |= zip(part, self._many(part, mark), strict=True)
        return tokens_of

    def _many(self, keys: Sequence[str], mark: str) -> list[str]:
        """Tokenise the words of all these keys, each with the mark before and after it."""
        words = [key.partition(" ")[0] for key in keys]
        joined = " ".join(words)
        while mark in joined:
            mark += mark
        text = self._whole(f"{mark} " + f" {mark} ".join(words) + f" {mark}")
        return [tokens.strip(" ") for tokens in text.split(mark)[1:-1]]

    def _whole(self, text: str) -> str:
        # escape would turn quotes and brackets into XML entities, which a model has to learn
        return " ".join(self.tokenize(text, escape=False, aggressive_dash_splits=False))


def _depends_on_context(word: str) -> bool:
    """Return whether the tokens of a word depend on what is next to it."""
    return word[0] in ",'" or word[-1] in ",.'"


def _ranges(characters: str) -> str:
    """Write a set of characters as ranges, for a pattern."""
    spans: list[list[int]] = []
    for code in sorted(set(map(ord, characters))):
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)
