"""A directory of Hugging Face as the proof asks it: what transformers makes of it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.exchange import transformers_files
from nmt.exchange.adapter import TRANSFORMERS, Output
from nmt.exchange.marian_ids import ABSENT, MarianIds
from nmt.exchange.proof import IMPOSSIBLE
from nmt.exchange.transformers_files import language_id
from nmt.modeldir import Trained
from nmt.text.vocab import BOS, EOS, Vocabulary


class TransformersScorer:
    """A directory that a model class and a tokenizer of transformers read; an EngineScorer.

    Of our model it gets the pieces, whose ids the tokenizer gives, and the names of the languages.
    """

    library = TRANSFORMERS
    computed_in = "float32"
    options: Mapping[str, Any] = {}  # those of generation_config.json
    longest_source: int | None = None
    longest_target: int | None = None

    def __init__(self, directory: Path, trained: Trained) -> None:
        """Raises UserError (65) for a directory that transformers cannot read."""
        decode = trained.settings.decode
        names = decode.source_language, decode.target_language
        options = {"src_lang": names[0].strip("_")} if names[0] else {}
        self.tokenizer = transformers_files.open_tokenizer(directory, **options)
        self.model = transformers_files.open_model(directory)
        for module in self.model.modules():
            if hasattr(module, "create_weight"):  # Marian's sinusoids: stored ones may be rounded
                module.weight.data = module.create_weight()
                self.longest_source = self.longest_target = len(module.weight)
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            backend.encode_special_tokens = True  # what looks like such a piece is text
        given, unk = self.model.generation_config, self.tokenizer.unk_token_id
        never = {self.tokenizer.pad_token_id, given.decoder_start_token_id}
        self._never = [[i] for i in never - {self.tokenizer.eos_token_id}]
        self._never += [[unk]] if [unk] in (given.bad_words_ids or []) else []
        special = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
        # what else generation_config.json asks for, nmt does not take over
        self.model.generation_config = type(given)(**{key: getattr(given, key) for key in special})
        known = transformers_files.pieces_of(self.tokenizer)
        vocabularies = trained.source.vocabulary, trained.target.vocabulary
        start = given.decoder_start_token_id
        self.source, self.target = (
            self._number(v, ids, start) for v, ids in zip(vocabularies, known, strict=True)
        )
        self.languages = [
            [language_id(ids, name)] if name else [] for name, ids in zip(names, known, strict=True)
        ]  # their ids before source and target
        self.absent: Sequence[int] = self.target.absent
        self.barred: Sequence[int] = self.target.absent

    def _number(self, vocabulary: Vocabulary, known: Mapping[str, int], start: int) -> MarianIds:
        """The tokenizer's ids of our pieces; those that it does not know are rows without one."""
        t, pieces = self.tokenizer, vocabulary.to_json()
        used = {start, *t.all_special_ids, *(known[piece] for piece in pieces if piece in known)}
        free = (i for i in count() if i not in used)
        order = [known[piece] if piece in known else next(free) for piece in pieces]
        pad = ABSENT if t.pad_token_id == start else t.pad_token_id
        return MarianIds(vocabulary, [t.eos_token_id, t.unk_token_id, *order], start, pad)

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line, eos included, without the language that the tokenizer puts first."""
        ids = self.tokenizer(line, split_special_tokens=True)["input_ids"]
        before = len(self.languages[0])
        return self.source.ours(ids[before:] if ids[:before] == self.languages[0] else ids)

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
    def _start(self) -> list[Any]:
        return [self.target.start, *self.languages[1]]

    def _inputs(self, source: list[int]) -> dict[str, Tensor]:
        ids = torch.tensor([[*self.languages[0], *self.source.of([*source, EOS])]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
