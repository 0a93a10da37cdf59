"""The engine of this toolkit: its own models, searched by beams or sampled from."""

import logging
from collections.abc import Callable, Mapping, Set

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.config import Decode
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decode import source_limit
from nmt.decode.beam import Hypothesis, Step, search
from nmt.decode.quantised import quantised
from nmt.decode.sampling import Draw, random_numbers, sample
from nmt.decode.sources import LENGTH, Source
from nmt.errors import Exit, UserError, is_want_of_memory
from nmt.memory import memory_of
from nmt.model import example
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.precision import NO_BFLOAT16, bfloat16_is_faster

FORBIDDEN = {"forbid": (PAD, BOS, UNK), "allow": (PAD, BOS)}  # decode.unknown -> ids

log = logging.getLogger(__name__)


class TorchEngine:
    """A trained model that searches for translations; an Engine."""

    def __init__(self, trained: Trained, decode: Decode) -> None:
        """Raises UserError for settings that this model or its device cannot follow."""
        self.model, self.decode = trained.model, decode
        self.source_size = len(trained.source.vocabulary)
        _check_length(self.model, decode)
        if decode.position_scale != 1:
            _scale_positions(self.model, decode.position_scale)
        self.device = next(self.model.parameters()).device
        self._choose_precision(decode.precision)

    def _choose_precision(self, precision: str) -> None:
        """Take a number format; float32, with a warning, where that is faster on this CPU.

        Raises UserError for what the device cannot.
        """
        if precision == "int8":
            self.model = quantised(self.model)
        self.bfloat16 = precision == "bfloat16"
        if not self.bfloat16:
            return
        if self.device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            raise UserError(
                f"decode.precision=bfloat16: {self.device} has no units for it; choose float32"
            )
        if self.device.type == "cpu" and not bfloat16_is_faster():
            log.warning(NO_BFLOAT16, "decode")
            self.bfloat16 = False

    @property
    def source_limit(self) -> int | None:
        """Ids of the longest source that its tables hold, EOS included; None: any length."""
        return self.model.source_limit

    @property
    def target_limit(self) -> int | None:
        """Ids of the longest output that its tables hold, BOS or EOS included; None: any length."""
        return self.model.target_limit

    @property
    def columns(self) -> Set[str]:
        """Names of the columns of integers that the model reads beside the source."""
        return self.model.columns

    @property
    def column_ranges(self) -> Mapping[str, range]:
        """The integers that each column may hold, by name."""
        return self.model.column_ranges

    def room(self, limit: Callable[[int], int], n_best: int) -> int:
        """Return how many pieces, eos apart, a source may have by the memory of the device."""
        table = self.model.target_limit

        def attempt(length: int, steps: int) -> None:
            steps = steps if table is None else min(steps, table - 1)
            self._try(length, steps, n_best)

        return source_limit.longest(attempt, limit, memory_of(self.device))

    def _try(self, length: int, steps: int, n_best: int) -> None:
        """Search for a translation of so many pieces of a made-up source of this length, eos in."""
        source = example.ids(1, length, self.source_size)
        columns = example.columns(self.model.columns, source)
        rows = {name: column[0].tolist() for name, column in columns.items()}
        if self.decode.target_length == "given":
            rows[LENGTH] = [steps]
        self._search([Source(source[0].tolist(), rows)], [steps], n_best, eos=-1)

    def search(
        self, sources: list[Source], limits: list[int], n_best: int
    ) -> list[list[Hypothesis]]:
        """Find the n_best hypotheses, or fewer, for each source of a batch; best first.

        With decode.method=sample they are n_best samples, in the order in which they were drawn.
        Raises UserError (71) where memory is short.
        """
        try:
            return self._search(sources, limits, n_best, EOS)
        except (RuntimeError, MemoryError) as error:
            if not is_want_of_memory(error):
                raise
            raise UserError(
                f"decode.batch_tokens={self.decode.batch_tokens}: too much for the memory of "
                f"{self.device}; give a smaller one",
                Exit.NO_MEMORY,
            ) from None

    @torch.inference_mode()
    def _search(
        self, sources: list[Source], limits: list[int], n_best: int, eos: int
    ) -> list[list[Hypothesis]]:
        source = self._padded([source.ids for source in sources])  # [batch, source]
        columns = {  # [batch, source] each, or [batch, 1]
            name: self._padded([source.columns[name] for source in sources])
            for name in sources[0].columns
        }
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            state = self.model.start(source, columns, self._lengths(sources, columns))

            def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
                if parents is not None:
                    state.reorder(parents)
                return self.model.step(tokens, state).float().log_softmax(dim=-1)

            choose = self._sampled if self.decode.method == "sample" else self._best
            return choose(step, sources, torch.tensor(limits).to(self.device), n_best, eos)

    def _best(
        self, step: Step, sources: list[Source], limits: Tensor, n_best: int, eos: int
    ) -> list[list[Hypothesis]]:
        return search(
            step,
            limits,
            beam_size=self.decode.beam_size,
            alpha=self.decode.alpha,
            penalised=self.decode.length_penalty,
            bos=BOS,
            eos=eos,
            forbidden=FORBIDDEN[self.decode.unknown],
            n_best=n_best,
        )

    def _sampled(
        self, step: Step, sources: list[Source], limits: Tensor, n_best: int, eos: int
    ) -> list[list[Hypothesis]]:
        draws = [Draw(source.line, source.part) for source in sources]
        return sample(
            step,
            limits,
            random_numbers(self.decode.seed, draws, n_best, int(limits.max()) + 1),
            temperature=self.decode.temperature,
            top_k=self.decode.top_k,
            top_p=self.decode.top_p,
            bos=BOS,
            eos=eos,
            forbidden=FORBIDDEN[self.decode.unknown],
        )

    def _lengths(self, sources: list[Source], columns: dict[str, Tensor]) -> Tensor | None:
        """Desired lengths [batch], eos included; None: nobody asks, or the model's head tells."""
        if not self.model.needs_lengths or self.decode.target_length == "predicted":
            return None
        if self.decode.target_length == "given":
            return columns.pop(LENGTH)[:, 0].clamp(min=0) + 1
        pieces = [len(source.ids) - 1 for source in sources]
        lengths = [max(1, round(self.decode.length_ratio * n)) + 1 for n in pieces]
        return torch.tensor(lengths, device=self.device)

    def _padded(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(self.device)


def _check_length(model: Transformer, decode: Decode) -> None:
    """Refuse a way to the desired length that this model cannot go."""
    if decode.target_length == "predicted" and model.length_head is None:
        raise UserError(
            "decode.target_length=predicted: this model cannot tell a length; train one with "
            "model.length_head=true"
        )
    if decode.target_length == "given" and not model.needs_lengths:
        raise UserError(
            "decode.target_length=given: no encoding of this model asks for a length; train "
            "one with encoding=ldpe or encoding=lrpe"
        )


def _scale_positions(model: Transformer, factor: float) -> None:
    try:
        for site in model.sites.values():
            site.scale_positions(factor)
    except ValueError as error:
        raise UserError(f"decode.position_scale={factor}: {error}") from None
