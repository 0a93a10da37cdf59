"""Moses tokenisation by sacremoses, without what it computes again for each word."""

import re
from collections.abc import Collection, Sequence

from sacremoses import MosesTokenizer


class Moses(MosesTokenizer):  # type: ignore[misc]
    """The tokenizer of one language: the same words, sooner."""

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

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Tokenise lines; single spaces are between the words of the result."""
        # escape would turn quotes and brackets into XML entities, which a model has to learn
        split = (self.tokenize(line, escape=False, aggressive_dash_splits=False) for line in lines)
        return [*map(" ".join, split)]

    def islower(self, text: str) -> bool:
        """Return whether all characters are lower-case letters, as sacremoses does."""
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        """Return whether one of the characters is a letter, as sacremoses does."""
        return not self._letters.isdisjoint(text)


def _ranges(characters: str) -> str:
    """Write a set of characters as ranges, for a pattern."""
    spans: list[list[int]] = []
    for code in sorted(set(map(ord, characters))):
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)
