"""BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267): merges are left out at random."""

from collections.abc import Callable
from itertools import pairwise
from sys import intern

from subword_nmt.apply_bpe import check_vocab_and_split

from nmt.data.bpe import SEPARATOR, Bpe, parts
from nmt.data.bpe.symbols import END
from nmt.data.vocab import UNK, Vocabulary

REMEMBERED = 2**16  # words and their states that are kept; they take some 50 MB


class BpeDropout:
    """Segments words anew, each possible merge being left out with a probability, at each step.

    So does subword-nmt with --dropout and --vocabulary: what comes out and is no piece of the
    vocabulary is cut again, by the merges that made it. Where a character is no piece either, the
    word keeps its own segmentation; so do words with an unknown piece, and those that are cut
    before they are segmented (over 1000 characters, or ending in the separator).
    """

    def __init__(self, segmenter: Bpe, vocabulary: Vocabulary, dropout: float) -> None:
        self._dropout = dropout
        self._ranks: dict[tuple[str, str], int] = segmenter.codes.bpe_codes
        self._halves = segmenter.codes.bpe_codes_reverse
        pieces = vocabulary.to_json()
        self._pieces = set(pieces)
        self._vocabulary = vocabulary
        first = len(vocabulary) - len(pieces)
        self._texts = [""] * first + pieces
        self._ends = [False] * first + [not piece.endswith(SEPARATOR) for piece in pieces]
        self._words: dict[tuple[int, ...], _State | None] = {}
        self._states: dict[tuple[str, ...], _State] = {}

    def line(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        """Segment a line anew, given by its own ids without EOS."""
        ends, sampled, start = self._ends, list[int](), 0
        for place, number in enumerate(ids, start=1):
            if ends[number]:
                word = tuple(ids[start:place])
                sampled += self._word(word, draw)
                start = place
        return sampled + ids[start:]

    def _word(self, word: tuple[int, ...], draw: Callable[[], float]) -> tuple[int, ...]:
        """Segment a word anew, given by its own ids."""
        try:
            state = self._words[word]
        except KeyError:
            state = self._learn(word)
        if state is None:
            return word
        dropout = self._dropout
        while True:
            for places in state.merges:
                kept = tuple([place for place in places if draw() >= dropout])
                if kept:
                    break
            else:
                break
            state = state.after.get(kept) or self._merged(state, kept)
        if state.ids is None:
            state.ids = self._ids(state.symbols)
        return state.ids or word

    def _learn(self, word: tuple[int, ...]) -> "_State | None":
        """Find out with which state a word begins; None: it keeps its segmentation."""
        text = "".join(self._texts[number].removesuffix(SEPARATOR) for number in word)
        whole = UNK not in word and len(parts(text)) == 1
        state = self._state((*text[:-1], intern(text[-1] + END))) if whole else None
        if self._room():
            self._words[word] = state
        return state

    def _room(self) -> bool:
        """Whether more may be kept: what comes first is mostly what comes often."""
        return len(self._states) + len(self._words) < REMEMBERED

    def _state(self, symbols: tuple[str, ...]) -> "_State":
        state = self._states.get(symbols) or _State(symbols, self._ranks)
        if self._room():
            self._states[symbols] = state
        return state

    def _merged(self, state: "_State", places: tuple[int, ...]) -> "_State":
        """The state after the merge of a pair at some of its places, from left to right."""
        symbols, end = list[str](), 0
        for place in places:
            if place >= end:  # else it overlaps with the one before, as in x x x
                merged = intern("".join(state.symbols[place : place + 2]))
                symbols += [*state.symbols[end:place], merged]
                end = place + 2
        after = self._state((*symbols, *state.symbols[end:]))
        if self._room():
            state.after[places] = after
        return after

    def _ids(self, symbols: tuple[str, ...]) -> tuple[int, ...]:
        """The ids of what a word was merged to; none where a character has none."""
        segments = (*symbols[:-1], symbols[-1].removesuffix(END))
        *heads, last = check_vocab_and_split(segments, self._halves, self._pieces, SEPARATOR)
        ids = self._vocabulary.ids([*(head + SEPARATOR for head in heads), last])[:-1]
        return () if UNK in ids else tuple(ids)


class _State:
    """The symbols of a word while they are merged."""

    __slots__ = ("after", "ids", "merges", "symbols")

    def __init__(self, symbols: tuple[str, ...], ranks: dict[tuple[str, str], int]) -> None:
        self.symbols = symbols
        places: dict[int, list[int]] = {}
        for place, pair in enumerate(pairwise(symbols)):
            if (rank := ranks.get(pair)) is not None:
                places.setdefault(rank, []).append(place)
        self.merges = [tuple(places[rank]) for rank in sorted(places)]  # the first learned first
        self.after: dict[tuple[int, ...], _State] = {}  # by the places that were merged
        self.ids: tuple[int, ...] | None = None  # once they have been asked for
