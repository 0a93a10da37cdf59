"""A directory of Hugging Face as the proof asks it: what transformers makes of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config.settings import Decode
from nmt.decode.torch_engine import FORBIDDEN
from nmt.exchange import m2m100_tokens
from nmt.exchange.adapter import TRANSFORMERS, Output
from nmt.exchange.marian_ids import MarianIds
from nmt.exchange.proof import IMPOSSIBLE
from nmt.exchange.transformers_config import special
from nmt.text.languages import language_id
from nmt.text.vocab import BOS, EOS


class MarianScorer:
    """A directory that MarianMTModel and MarianTokenizer read; an EngineScorer."""

    library = TRANSFORMERS
    computed_in = "float32"
    options: Mapping[str, Any] = {}  # those of generation_config.json
    classes = ("MarianMTModel", "MarianTokenizer")  # of transformers
    languages: Sequence[list[int]] = ([], [])  # their ids before source and target
    longest_source: int | None
    longest_target: int | None

    def __init__(
        self, directory: Path, decode: Decode, source: MarianIds, target: MarianIds
    ) -> None:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        of_model, of_tokenizer = (getattr(transformers, name) for name in self.classes)
        self.tokenizer = of_tokenizer.from_pretrained(directory, local_files_only=True)
        self.model: Any = of_model.from_pretrained(
            directory, local_files_only=True, dtype=torch.float32
        ).eval()
        for module in self.model.modules():
            if hasattr(module, "create_weight"):  # Marian's sinusoids: stored ones may be rounded
                module.weight.data = module.create_weight()
        # what else generation_config.json asks for, nmt does not take over
        self.model.generation_config = transformers.GenerationConfig(**special(target))
        self.source, self.target = source, target
        self.absent: Sequence[int] = target.absent
        self.barred: Sequence[int] = target.absent
        self.longest_source = self.longest_target = self.model.config.max_position_embeddings
        self._never = target.never(FORBIDDEN[decode.unknown])

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line, eos included."""
        return self.source.ours(self.tokenizer(line, split_special_tokens=True)["input_ids"])

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Those of all ids but PAD."""
        for source, target in pairs:
            with torch.inference_mode():
                before = torch.tensor([[*self._start, *self.target.of(target)]])
                logits = self.model(**self._inputs(source), decoder_input_ids=before).logits[0]
            rows = logits[len(self._start) - 1 :].log_softmax(-1)[:, self.target.theirs[BOS:]]
            if BOS in self.absent:
                rows[:, 0] = IMPOSSIBLE
            yield rows

    def outputs(
        self, sources: Sequence[list[int]], limits: Sequence[int], beam: int
    ) -> Iterator[Output]:
        """The best output for each source."""
        for source, limit in zip(sources, limits, strict=True):
            with torch.inference_mode():
                (row,) = self.model.generate(
                    **self._inputs(source),
                    decoder_input_ids=torch.tensor([self._start]),
                    num_beams=beam,
                    do_sample=False,
                    length_penalty=0.0,
                    early_stopping=False,
                    forced_eos_token_id=None,
                    bad_words_ids=self._never,
                    max_new_tokens=limit + 1,  # eos, too
                )
            ids = self.target.ours(row.tolist()[len(self._start) :])
            yield Output(ids[:-1], ids[-1] == EOS)

    @property
    def _start(self) -> list[int]:
        return [self.target.start, *self.languages[1]]

    def _inputs(self, source: list[int]) -> dict[str, Tensor]:
        ids = torch.tensor([[*self.languages[0], *self.source.of([*source, EOS])]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class M2M100Scorer(MarianScorer):
    """A directory that M2M100ForConditionalGeneration and a tokenizer read; an EngineScorer."""

    def __init__(
        self, directory: Path, decode: Decode, source: MarianIds, target: MarianIds
    ) -> None:
        self.classes = m2m100_tokens.classes([file.name for file in directory.iterdir()])
        super().__init__(directory, decode, source, target)
        self.longest_source = self.longest_target = None
        names = (decode.source_language, decode.target_language)
        numbers = (language_id(source.vocabulary, name, "decode") for name in names)
        self.languages = tuple(source.of([number]) for number in numbers if number is not None)
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            backend.encode_special_tokens = True  # what looks like such a piece is text

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line, eos included."""
        ids = self.tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*self.source.ours(ids), EOS]
