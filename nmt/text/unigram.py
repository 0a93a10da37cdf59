"""Unigram language model segmentation with SentencePiece (Kudo 2018, arXiv:1804.10959)."""

import base64
import io
import math
import random
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.errors import Exit, UserError
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import SPECIALS, UNK, Vocabulary, is_piece

SPACE = "\u2581"  # represents a space within pieces
THREADS = 4  # the learned scores depend on it, so it is fixed
CODE = re.compile(">>.*?<<")  # the target language of a multilingual Marian model


class Unigram:
    """Segments text into its most probable pieces under a unigram language model."""

    kind = "unigram"

    def __init__(self, tokenizer: Tokenizer, model: bytes) -> None:
        self.tokenizer, self.model = tokenizer, model
        self._processor = SentencePieceProcessor(model_proto=model)

    @property
    def pieces(self) -> list[str]:
        """The pieces that text can have: all but symbols and unused ones."""
        p = self._processor
        excluded = (p.is_control, p.is_unknown, p.is_unused)
        pieces = [p.id_to_piece(i) for i in range(len(p)) if not any(f(i) for f in excluded)]
        return [*filter(is_piece, pieces)]

    def encode(self, text: str) -> list[str]:
        """Normalise, tokenise and segment one line; a run of unknown characters is one piece."""
        return self.segment(self.tokenizer.tokenize(text))

    def segment(self, words: str) -> list[str]:
        """Segment words that are separated by single spaces; symbols are pieces."""
        encode = partial(self._processor.encode, out_type=str)
        symbols, parts = self.tokenizer.symbols, self.tokenizer.split_at_symbols(words)
        return [x for part in parts for x in ([part] if part in symbols else encode(part))]

    def best(self, words: str, most: int) -> list[list[str]]:
        return self._processor.nbest_encode(words, nbest_size=most, out_type=str)

    def log_probabilities(self) -> dict[str, float]:
        """The log-probabilities of the language model's pieces.

        Symbols, bytes and user-defined pieces (which SentencePiece scores as 0) are left out.
        ValueError for a SentencePiece model that is no unigram model.
        """
        p = self._processor
        try:
            self.best("a", 2)
        except RuntimeError:
            raise ValueError("its SentencePiece model is no unigram model") from None
        excluded = (p.is_control, p.is_unknown, p.is_unused, p.is_byte)
        return {
            p.id_to_piece(i): p.get_score(i)
            for i in range(len(p))
            if p.get_score(i) < 0 and not any(is_excluded(i) for is_excluded in excluded)
        }

    def surfaces(self, pieces: Sequence[str]) -> list[str]:
        """Return the characters that each piece represents; a piece may be a mere space."""
        return [piece.replace(SPACE, "") for piece in pieces]

    def decode(self, pieces: Sequence[str]) -> str:
        symbols, joined = self.tokenizer.symbols, list[str]()
        for is_symbol, group in groupby(pieces, symbols.__contains__):
            joined.append((" ".join if is_symbol else self._join)(list(group)))
        return self.tokenizer.detokenize(" ".join(joined))

    @cached_property
    def joins(self) -> bool:
        """Whether the model itself joins pieces: it alone makes characters of single bytes."""
        return any(map(self._processor.is_byte, range(len(self._processor))))

    def _join(self, pieces: list[str]) -> str:
        """Join pieces none of which is a symbol; the model leaves unknown ones as they are."""
        joined = self._processor.decode(pieces) if self.joins else "".join(pieces)
        return joined.replace(SPACE, " ")

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "tokenizer": self.tokenizer.to_json(),
            "model": base64.b64encode(self.model).decode("ascii"),
        }


class MarianSegmenter(Unigram):
    """The segmenter of Marian models as Hugging Face stores them.

    A line may begin with `>>xx<<`, the code of its target language. That is a piece by itself,
    which SentencePiece never sees (MarianTokenizer.remove_language_code of transformers).
    """

    kind = "marian"

    def segment(self, words: str) -> list[str]:
        code = CODE.match(words)
        return [*([code[0]] if code else []), *super().segment(words[code.end() if code else 0 :])]

    @cached_property
    def joins(self) -> bool:
        """True: MarianTokenizer leaves it to the model."""
        return True


def language_codes(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids of the codes, one of which each source of a multilingual model begins with."""
    pieces = enumerate(vocabulary.to_json(), start=SPECIALS)
    return {piece: i for i, piece in pieces if CODE.fullmatch(piece)}


def learn_model(lines: Iterable[str], vocabulary_size: int, character_coverage: float) -> bytes:
    """Learn a model of `vocabulary_size` pieces, or fewer if the text gives fewer.

    Raises UserError (65) where SentencePiece fails, as where the characters alone need more pieces.
    """
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size + 1,  # its symbol for unknown text is not in our vocabulary
            character_coverage=character_coverage,
            hard_vocab_limit=False,
            normalization_rule_name="identity",  # done before, for all segmenters alike
            max_sentence_length=2**30,  # bytes; the default silently skips lines above 4192
            input_sentence_size=0,
            shuffle_input_sentence=False,
            num_threads=THREADS,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            minloglevel=3,
        )
    except (RuntimeError, ValueError, OSError) as error:  # one says by itself what to change
        reason = " ".join(str(error).split())
        raise UserError(f"segmenter.kind=unigram: SentencePiece: {reason}", Exit.DATA) from None
    return model.getvalue()


class NBest:
    """Samples from the best segmentations of a line, in proportion to p^alpha (Kudo 2018).

    p is the product of the probabilities of the pieces. Unknown pieces, and pieces that are not in
    the language model, stay; so does the rest of their word. SentencePiece can sample as well, but
    seeds its random generator once per thread: a line would depend on the lines before it.
    """

    def __init__(self, segmenter: Unigram, vocabulary: Vocabulary, alpha: float, most: int) -> None:
        """ValueError for a segmenter that is no unigram model."""
        self._probable = segmenter.log_probabilities()
        self._segmenter, self._vocabulary = segmenter, vocabulary
        self._alpha, self._most = alpha, most

    def sample(self, ids: list[int]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS.

        Draws from Python's module `random`.
        """
        pieces, sampled, start = self._vocabulary.pieces(ids), list[int](), 0
        for is_known, run in groupby(piece in self._probable for piece in pieces):
            end = start + len([*run])
            run_ids = ids[start:end]
            sampled += self._run(run_ids, "".join(pieces[start:end])) if is_known else run_ids
            start = end
        return sampled

    def _run(self, ids: list[int], text: str) -> list[int]:
        """Sample a segmentation of the text between pieces that the model does not have."""
        lines, scores = list[list[int]](), list[float]()
        for pieces in self._segmenter.best(text.replace(SPACE, " ").strip(" "), self._most):
            numbers = self._vocabulary.ids(pieces)[:-1]
            if UNK not in numbers and "".join(pieces) == text:
                lines.append(numbers)
                scores.append(self._alpha * sum(self._probable[piece] for piece in pieces))
        if not lines:
            return ids
        weights = [math.exp(score - max(scores)) for score in scores]
        return random.choices(lines, weights)[0]
