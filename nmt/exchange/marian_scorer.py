"""A Marian directory as the proof asks it: what transformers makes of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import Decode
from nmt.data.vocab import BOS, EOS, PAD
from nmt.decode.torch_engine import FORBIDDEN
from nmt.exchange.adapter import TRANSFORMERS, Output
from nmt.exchange.marian_ids import MarianIds


class MarianScorer:
    """A directory that MarianMTModel and MarianTokenizer read; an EngineScorer."""

    library = TRANSFORMERS
    computed_in = "float32"
    options: Mapping[str, Any] = {}  # those of generation_config.json
    absent: Sequence[int] = (PAD,)
    barred: Sequence[int] = (PAD,)
    longest_source: int | None
    longest_target: int | None

    def __init__(
        self, directory: Path, decode: Decode, source: MarianIds, target: MarianIds
    ) -> None:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        model: Any = transformers.MarianMTModel.from_pretrained(directory, local_files_only=True)
        self.model = model.float().eval()
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(
            directory, local_files_only=True
        )
        self.source, self.target = source, target
        self.longest_source = self.longest_target = model.config.max_position_embeddings
        forbidden = [i for i in FORBIDDEN[decode.unknown] if i != PAD]
        self._never = [[number] for number in target.of(forbidden)]

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line, eos included."""
        return self.source.ours(self.tokenizer(line)["input_ids"])

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Those of all ids but PAD, which it does not have."""
        for source, target in pairs:
            with torch.inference_mode():
                before = torch.tensor([self.target.of([BOS, *target])])
                logits = self.model(**self._inputs(source), decoder_input_ids=before).logits[0]
            yield logits[:, self.target.theirs].log_softmax(-1)

    def outputs(
        self, sources: Sequence[list[int]], limits: Sequence[int], beam: int
    ) -> Iterator[Output]:
        """The best output for each source."""
        for source, limit in zip(sources, limits, strict=True):
            with torch.inference_mode():
                (row,) = self.model.generate(
                    **self._inputs(source),
                    num_beams=beam,
                    do_sample=False,
                    length_penalty=0.0,
                    early_stopping=False,
                    forced_eos_token_id=None,
                    bad_words_ids=self._never,
                    max_new_tokens=limit + 1,  # eos, too
                )
            ids = self.target.ours(row.tolist())[1:]
            yield Output(ids[:-1], ids[-1] == EOS)

    def _inputs(self, source: list[int]) -> dict[str, Tensor]:
        ids = torch.tensor([self.source.of([*source, EOS])])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
