"""An M2M100 or NLLB directory as the proof asks it: what transformers makes of it."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nmt.config import Decode
from nmt.data.languages import language_id
from nmt.data.vocab import BOS, EOS
from nmt.exchange.marian_ids import MarianIds
from nmt.exchange.marian_scorer import MarianScorer
from nmt.exchange.proof import IMPOSSIBLE


class M2M100Scorer(MarianScorer):
    """A directory that M2M100ForConditionalGeneration and a tokenizer read; an EngineScorer."""

    absent: Sequence[int] = (BOS,)  # its decoder starts with eos
    barred: Sequence[int] = (BOS,)

    def __init__(self, directory: Path, decode: Decode, ids: MarianIds, tokenizer: str) -> None:
        """`tokenizer`: its class in transformers."""
        self.classes = ("M2M100ForConditionalGeneration", tokenizer)
        super().__init__(directory, decode, ids, ids)
        self.longest_source = self.longest_target = None
        names = (decode.source_language, decode.target_language)
        numbers = (language_id(ids.vocabulary, name, "decode") for name in names)
        self.languages = tuple(ids.of([number]) for number in numbers if number is not None)
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            backend.encode_special_tokens = True  # what looks like such a piece is text

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line, eos included."""
        ids = self.tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*self.source.ours(ids), EOS]

    def of_ours(self, logits: Tensor) -> Tensor:
        """Log-probabilities of our ids but PAD; BOS has none."""
        rows = logits.log_softmax(-1)[:, self.target.theirs]
        rows[:, 0] = IMPOSSIBLE
        return rows
