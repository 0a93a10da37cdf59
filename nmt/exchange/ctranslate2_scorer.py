"""CTranslate2 as the proof uses it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nmt.config.settings import Decode
from nmt.decode.engine import within_table
from nmt.decode.torch_engine import FORBIDDEN
from nmt.exchange.ctranslate2_names import Naming, output_options, search_options
from nmt.exchange.interface import CTRANSLATE2, EngineScorer, Output
from nmt.exchange.samples import MOST


class CTranslate2Scorer(EngineScorer):
    """A directory that CTranslate2 reads, on the CPU and one thread."""

    library = CTRANSLATE2

    def __init__(
        self, directory: Path, naming: Naming, decode: Decode, precision: str = "float32"
    ) -> None:
        """`precision` of the computations; "default": that of the weights."""
        from ctranslate2 import Translator

        self._reader = Translator(
            str(directory), compute_type=precision, inter_threads=1, intra_threads=1
        )
        self._naming, self._decode = naming, (decode := decode.by_beam())
        self.computed_in = self._reader.compute_type
        self.barred = FORBIDDEN[decode.unknown]
        # behind a prefix CTranslate2 bars eos from all beams but the first (its pull request 290)
        self.misses_empty = bool(naming.target.language)
        self.longest_source, self.longest_target = (side.longest for side in naming)
        # high enough for the longest source
        longest = MOST if self.longest_source is None else self.longest_source - 1
        limit = int(decode.max_length_ratio * longest) + decode.max_length_offset
        of_output = output_options(naming, 1, within_table(limit, self.longest_target))
        self.options = search_options(naming, decode) | of_output

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Log-probabilities of each target's ids and eos, in batches of mixed lengths."""
        scored = self._reader.score_batch(
            [self._naming.source.of(source) for source, _ in pairs],
            [self._naming.target.of(target) for _, target in pairs],
            max_batch_size=8,
            max_input_length=0,
        )
        before = len(self._naming.target.language)
        return (torch.tensor(result.log_probs[before:]) for result in scored)

    def output(self, source: list[int], limit: int, beam: int) -> Output:
        options = search_options(self._naming, replace(self._decode, beam_size=beam, alpha=0.0))
        options |= output_options(self._naming, 1, limit + 1)  # eos, too
        (result,) = self._reader.translate_batch([self._naming.source.of(source)], **options)
        ids = self._naming.target.ids(result.hypotheses[0])
        return Output(ids[:limit], len(ids) <= limit)
