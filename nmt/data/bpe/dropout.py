"""BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267): merges are left out at random."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from sys import intern

from subword_nmt.apply_bpe import check_vocab_and_split

from nmt.data.bpe import LONGEST_WORD, SEPARATOR, Bpe, parts
from nmt.data.bpe.symbols import END
from nmt.data.vocab import SPECIALS, UNK, Vocabulary
from nmt.data.word_cache import WordCache

CACHED = 2**16  # states of words, which take some 50 MB, and as many words


class BpeDropout:
    """Segments words at random: at each step, each possible merge is skipped with a probability.

    As subword-nmt does with --dropout and --vocabulary: a resulting piece outside the vocabulary is
    split again, by the merges that made it. Where a character is not in the vocabulary either, the
    word keeps its segmentation; so do words with an unknown piece, those that are split before
    they are segmented (over 1000 characters, or ending in the separator), and symbols.
    """

    def __init__(self, segmenter: Bpe, vocabulary: Vocabulary, dropout: float) -> None:
        self._dropout = dropout
        self._halves = segmenter.codes.bpe_codes_reverse
        pieces = vocabulary.to_json()
        self._pieces = set(pieces)
        self._vocabulary, self._symbols = vocabulary, segmenter.tokenizer.symbols
        self._texts = [""] * SPECIALS + pieces
        self._ends = [False] * SPECIALS + [not piece.endswith(SEPARATOR) for piece in pieces]
        self._words = WordCache(self._first_state, CACHED, LONGEST_WORD)
        state = partial(_State, ranks=segmenter.codes.bpe_codes)
        self._states: WordCache[tuple[str, ...], _State] = WordCache(state, CACHED, LONGEST_WORD)

    def line(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS."""
        ends, sampled, start = self._ends, list[int](), 0
        for end, number in enumerate(ids, start=1):
            if ends[number]:
                word = tuple(ids[start:end])
                sampled += self._word(word, draw)
                start = end
        return sampled + ids[start:]

    def _word(self, word: tuple[int, ...], draw: Callable[[], float]) -> tuple[int, ...]:
        """Sample a segmentation of a word, given by its prepared ids."""
        state = self._words[word]
        if state is None:
            return word
        dropout = self._dropout
        while True:
            for pairs in state.merges:
                kept = tuple([index for index in pairs if draw() >= dropout])
                if kept:
                    break
            else:
                break
            state = state.after.get(kept) or self._merged(state, kept)
        if state.ids is None:
            state.ids = self._ids(state.symbols)
        return state.ids or word

    def _first_state(self, word: tuple[int, ...]) -> "_State | None":
        """Return the state with which a word begins; None: it keeps its segmentation."""
        text = "".join(self._texts[number].removesuffix(SEPARATOR) for number in word)
        sampled = UNK not in word and len(parts(text)) == 1 and text not in self._symbols
        return self._states[*text[:-1], intern(text[-1] + END)] if sampled else None

    def _merged(self, state: "_State", indices: tuple[int, ...]) -> "_State":
        """Return the state after the merge of a pair at some of its occurrences, left to right."""
        symbols, end = list[str](), 0
        for index in indices:
            if index >= end:  # else it overlaps with the one before, as in x x x
                merged = intern("".join(state.symbols[index : index + 2]))
                symbols += [*state.symbols[end:index], merged]
                end = index + 2
        after = self._states[*symbols, *state.symbols[end:]]
        if len(self._states) < CACHED:
            state.after[indices] = after
        return after

    def _ids(self, symbols: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ids of a word's symbols; none where a character has no id."""
        segments = (*symbols[:-1], symbols[-1].removesuffix(END))
        *heads, last = check_vocab_and_split(segments, self._halves, self._pieces, SEPARATOR)
        ids = self._vocabulary.ids([*(head + SEPARATOR for head in heads), last])[:-1]
        return () if UNK in ids else tuple(ids)


class _State:
    """The symbols of a word while they are merged."""

    __slots__ = ("after", "ids", "merges", "symbols")

    def __init__(self, symbols: tuple[str, ...], ranks: dict[tuple[str, str], int]) -> None:
        self.symbols = symbols
        indices: dict[int, list[int]] = {}
        for index, pair in enumerate(pairwise(symbols)):
            if (rank := ranks.get(pair)) is not None:
                indices.setdefault(rank, []).append(index)
        self.merges = [tuple(indices[rank]) for rank in sorted(indices)]  # the first learned first
        self.after: dict[tuple[int, ...], _State] = {}  # by the indices of the merged pairs
        self.ids: tuple[int, ...] | None = None  # once they were needed
