"""BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267): merges are left out at random."""

from functools import partial

from subword_nmt.apply_bpe import encode

from nmt.text.bpe import SEPARATOR, Bpe, parts
from nmt.text.vocab import SPECIALS, UNK, Vocabulary


class BpeDropout:
    """Segments words at random: at each step, each possible merge is skipped with a probability.

    By subword-nmt, as with --dropout and --vocabulary: a resulting piece outside the vocabulary is
    split again, by the merges that made it. Where a character is not in the vocabulary either, the
    word keeps its segmentation; so do words with an unknown piece, those that are split before
    they are segmented (over 1000 characters, or ending in the separator), and symbols.
    """

    def __init__(self, segmenter: Bpe, vocabulary: Vocabulary, dropout: float) -> None:
        pieces = vocabulary.to_json()
        self._vocabulary, self._symbols = vocabulary, segmenter.tokenizer.symbols
        self._texts = [""] * SPECIALS + [piece.removesuffix(SEPARATOR) for piece in pieces]
        self._ends = [False] * SPECIALS + [not piece.endswith(SEPARATOR) for piece in pieces]
        self._encode = partial(
            encode,
            bpe_codes=segmenter.codes.bpe_codes,
            bpe_codes_reverse=segmenter.codes.bpe_codes_reverse,
            vocab=set(pieces),
            separator=SEPARATOR,
            version=segmenter.codes.version,
            dropout=dropout,
        )

    def line(self, ids: list[int]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS.

        Draws from Python's module `random`, as subword-nmt does.
        """
        ends, sampled, start = self._ends, list[int](), 0
        for end, number in enumerate(ids, start=1):
            if ends[number]:
                sampled += self._word(ids[start:end])
                start = end
        return sampled + ids[start:]

    def _word(self, word: list[int]) -> list[int]:
        """Sample a segmentation of a word, given by its prepared ids."""
        text = "".join([self._texts[number] for number in word])
        if UNK in word or len(parts(text)) > 1 or text in self._symbols:
            return word
        *heads, last = self._encode(text, cache={})  # it would keep what it draws
        ids = self._vocabulary.ids([*(head + SEPARATOR for head in heads), last])[:-1]
        return word if UNK in ids else ids
