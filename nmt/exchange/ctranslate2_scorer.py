"""CTranslate2 as the proof uses it, and the options with which it searches as nmt does."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import Decode
from nmt.data.vocab import BOS, PAD
from nmt.decode.torch_engine import FORBIDDEN
from nmt.exchange.adapter import CTRANSLATE2, Output
from nmt.exchange.ctranslate2_names import Naming
from nmt.exchange.samples import MOST

# A search with a length penalty ends with so many times beam_size finished hypotheses. nmt goes on
# while an open one is better than all of them: of 200 lines of the embedded corpus that changed 8
# with 1, and none with 1.5 to 4.
PATIENCE = 2


def restrictions(naming: Naming, unknown: str) -> dict[str, Any]:
    """Options with which `translate_batch` chooses among the same outputs as nmt does."""
    return {
        "suppress_sequences": [[naming.target[i]] for i in (PAD, BOS)],
        "disable_unk": unknown != "allow",
        "min_decoding_length": 0,  # by default 1: no output is empty
        "max_input_length": 0,  # all of it: by default what is beyond 1,024 is not read
    }


def search_options(decode: Decode) -> dict[str, Any]:
    """How `translate_batch` must search to find what nmt finds, but for the limit of its length.

    With a length penalty that CTranslate2 does not have, it is to give all hypotheses and their
    scores, so that they can be ranked anew.
    """
    beam = decode.beam_size
    penalised = beam > 1 and decode.alpha > 0
    patience = PATIENCE if penalised else 1
    anew = is_ranked_anew(decode)
    return {
        "beam_size": beam,
        "patience": patience,
        "length_penalty": decode.alpha if penalised else 0,
        "num_hypotheses": beam * patience if anew else 1,
        "return_scores": anew,
    }


def is_ranked_anew(decode: Decode) -> bool:
    """Whether hypotheses are scored by a length penalty that CTranslate2 does not have."""
    return decode.beam_size > 1 and decode.alpha > 0 and decode.length_penalty == "wu"


def options(naming: Naming, decode: Decode) -> dict[str, Any]:
    """All arguments of `translate_batch` for settings of a model.

    `max_decoding_length` is that of the longest source that the tables are right for, or of MOST
    pieces where they have no end: no translation that ends is cut.
    """
    longest = MOST if naming.longest_source is None else naming.longest_source - 1
    limit = int(decode.max_length_ratio * longest) + decode.max_length_offset
    if naming.longest_target is not None:
        limit = min(limit, naming.longest_target - 1)
    return (
        search_options(decode)
        | restrictions(naming, decode.unknown)
        | {"max_decoding_length": limit}
    )


class CTranslate2Scorer:
    """A directory that CTranslate2 reads, on the CPU and one thread; an EngineScorer."""

    library = CTRANSLATE2
    absent: Sequence[int] = ()

    def __init__(
        self, directory: Path, naming: Naming, decode: Decode, precision: str = "float32"
    ) -> None:
        """`precision`: in which it computes; "default": that of the weights."""
        from ctranslate2 import Translator

        self._reader = Translator(
            str(directory), compute_type=precision, inter_threads=1, intra_threads=1
        )
        self._naming, self._choices = naming, restrictions(naming, decode.unknown)
        self.computed_in: str = self._reader.compute_type
        self.options: Mapping[str, Any] = options(naming, decode.by_beam())
        self.barred: Sequence[int] = FORBIDDEN[decode.unknown]
        self.longest_source, self.longest_target = naming.longest_source, naming.longest_target

    def source_ids(self, line: str) -> None:
        """It is given pieces."""

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Those of each target's ids and eos, in batches that mix lengths."""
        scored = self._reader.score_batch(
            [self._named(source) for source, _ in pairs],
            [[self._naming.target[i] for i in target] for _, target in pairs],
            max_batch_size=8,
            max_input_length=0,
        )
        return (torch.tensor(result.log_probs) for result in scored)

    def outputs(
        self, sources: Sequence[list[int]], limits: Sequence[int], beam: int
    ) -> Iterator[Output]:
        """The best output for each source."""
        ids = {name: number for number, name in enumerate(self._naming.target)}
        for source, limit in zip(sources, limits, strict=True):
            (result,) = self._reader.translate_batch(
                [self._named(source)],
                **self._choices,
                beam_size=beam,
                length_penalty=0,
                max_decoding_length=limit + 1,  # eos, too
            )
            output = [ids[piece] for piece in result.hypotheses[0]]
            yield Output(output[:limit], len(output) <= limit)

    def _named(self, source: list[int]) -> list[str]:
        return [self._naming.source[i] for i in source]
