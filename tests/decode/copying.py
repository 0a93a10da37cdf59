"""A model that copies its source, so that whose translation stands where can be seen."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.settings import Decode
from nmt.decode.engine import Source, Weights
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translator
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, Vocabulary
from tests.composing import settings_of

WORDS = [f"w{number}" for number in range(40)]
ENDLESS, NAN, TAB = "endless", "nan", "a\tb\r\u2028c\n"  # words with a meaning to the model


class Spaces:
    """Pieces are what stands between spaces."""

    tokenizer = Tokenizer("nfc", "none", "de")

    def surfaces(self, pieces: Sequence[str]) -> list[str]:
        return list(pieces)

    def encode(self, text: str) -> list[str]:
        return [piece for piece in text.split(" ") if piece]

    def decode(self, pieces: list[str]) -> str:
        return " ".join(pieces)


class CopyState:
    """What was read of each row; rows must come along with their tokens."""

    def __init__(self, source: Tensor) -> None:
        self.source, self.length = source, 0

    def reorder(self, rows: Tensor) -> None:
        self.source = self.source[rows.flatten()]


class Copying(nn.Module):
    """Says the pieces of the source; `endless` for ever, and no number after `nan`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.vocabulary = vocabulary
        self.source_limit: int | None = None
        self.target_limit: int | None = None
        self.columns: set[str] = set()
        self.column_ranges: dict[str, range] = {}
        self.needs_lengths = False
        self.source_language: int | None = None
        self.batches: list[tuple[int, ...]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Copying":
        return self  # which the tests ask for its batches

    def start(
        self, source: Tensor, columns: dict[str, Tensor], lengths: Tensor | None
    ) -> CopyState:
        assert torch.is_inference_mode_enabled()
        self.batches.append(tuple(source.shape))
        return CopyState(source)

    def step(self, tokens: Tensor, state: CopyState) -> Tensor:
        rows, width = state.source.shape
        assert tokens.shape == (rows,)
        assert (tokens == BOS).all() == (state.length == 0)
        assert self.target_limit is None or state.length < self.target_limit
        said = state.source[:, min(state.length, width - 1)]
        said = torch.where(said == PAD, EOS, said)
        endless, nan = self.vocabulary.ids([ENDLESS, NAN])[:2]
        said = torch.where((state.source == endless).any(1), endless, said)
        state.length += 1
        logits = -torch.arange(len(self.vocabulary)).float().repeat(rows, 1)
        logits.scatter_(1, said[:, None], 9.0)
        logits[said == nan] = float("nan")
        return logits


class Diagonal(TorchEngine):
    """Has models that copy attend to what they copy."""

    def cross_attention(self, pairs: Sequence[Source]) -> list[Weights]:
        return [np.eye(len(pair.target), len(pair.ids)) for pair in pairs]


def diagonal(some: Trained, options: Decode) -> Translator:
    """The translator of a model that attends to what it copies."""
    return Translator(some, options, Diagonal([some], options))


def trained(longest_source: int | None = 30) -> Trained:
    vocabulary = Vocabulary([*WORDS, ENDLESS, NAN, TAB])
    side = Side(cast(Any, Spaces()), vocabulary)
    model = cast(Any, Copying(vocabulary).eval())
    return Trained(settings_of(), model, side, side, {"longest_source": longest_source})


def model_of(translator: Translator) -> Any:
    """The model behind a translator."""
    return cast(Any, translator.engine).models[0]


def decode(**changes: Any) -> Decode:
    values: dict[str, Any] = {
        "beam_size": 2, "alpha": 0.6, "max_length_ratio": 2.0, "max_length_offset": 5,
        "batch_tokens": 60, "window": 7, "too_long": "refuse",
    }  # fmt: skip
    return replace(defaults(), **{**values, **changes})


@cache
def defaults() -> Decode:
    """Those of conf/."""
    return settings_of().decode
