"""CTranslate2 as the proof uses it, and all the options with which it searches as nmt does."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import Decode
from nmt.decode.torch_engine import FORBIDDEN
from nmt.exchange.adapter import CTRANSLATE2, Output
from nmt.exchange.ctranslate2_names import Naming
from nmt.exchange.ctranslate2_options import output_options, restrictions, search_options
from nmt.exchange.samples import MOST


def options(naming: Naming, decode: Decode, before: Sequence[str]) -> dict[str, Any]:
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
        | output_options(before, 1, limit)
    )


class CTranslate2Scorer:
    """A directory that CTranslate2 reads, on the CPU and one thread; an EngineScorer."""

    library = CTRANSLATE2
    absent: Sequence[int] = ()

    def __init__(
        self,
        directory: Path,
        naming: Naming,
        decode: Decode,
        precision: str = "float32",
        prefixes: tuple[list[str], list[str]] = ([], []),
    ) -> None:
        """`precision`: in which it computes; "default": that of the weights.

        `prefixes`: the pieces before source and target.
        """
        from ctranslate2 import Translator

        self._reader = Translator(
            str(directory), compute_type=precision, inter_threads=1, intra_threads=1
        )
        self._naming = naming
        self._before, self._after = prefixes
        self._choices = restrictions(naming, decode.unknown)
        self.computed_in: str = self._reader.compute_type
        self.options: Mapping[str, Any] = options(naming, decode.by_beam(), self._after)
        self.barred: Sequence[int] = FORBIDDEN[decode.unknown]
        self.longest_source, self.longest_target = naming.longest_source, naming.longest_target

    def source_ids(self, line: str) -> None:
        """It is given pieces."""

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Those of each target's ids and eos, in batches that mix lengths."""
        scored = self._reader.score_batch(
            [self._named(source) for source, _ in pairs],
            [[*self._after, *(self._naming.target[i] for i in target)] for _, target in pairs],
            max_batch_size=8,
            max_input_length=0,
        )
        return (torch.tensor(result.log_probs[len(self._after) :]) for result in scored)

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
                **output_options(self._after, 1, limit + 1),  # eos, too
            )
            output = [ids[piece] for piece in result.hypotheses[0][len(self._after) :]]
            yield Output(output[:limit], len(output) <= limit)

    def _named(self, source: list[int]) -> list[str]:
        return [*self._before, *(self._naming.source[i] for i in source)]
