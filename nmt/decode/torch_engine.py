"""The engine of this toolkit: its own models, searched by beams or sampled from."""

import logging
import math
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt import build
from nmt.config.settings import Decode
from nmt.decode.beam import NEVER, Beam
from nmt.decode.engine import LENGTH, Hypothesis, Source, Weights, length_penalty, within_memory
from nmt.decode.models import CoveragePenalty, adapt, as_tensors, cross_attention, set_precision
from nmt.decode.sampling import Sampling, probabilities, random_numbers
from nmt.decode.search import Step, search, with_new_ngrams, with_required
from nmt.encodings.base import common_ranges, least
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system.device import to_device, usable_threads
from nmt.system.pool import Executor, WorkerPool, can_fork, may_fork
from nmt.system.resources import cpus
from nmt.text.vocab import BOS, EOS, PAD, UNK

TOO_LARGE = (
    "decode.batch_tokens=%d: too much for the memory of %s; batches that do not fit are searched "
    "in halves; a smaller one is faster"
)
FORBIDDEN = {"forbid": (PAD, BOS, UNK), "allow": (PAD, BOS)}  # decode.unknown -> ids

log = logging.getLogger(__name__)


class TorchEngine:
    """Trained models that search for translations, alone or as an ensemble; an Engine.

    An ensemble takes the mean of the probabilities of its members, token by token (as fairseq, and
    OpenNMT-py with -avg_raw_probs); each reads the columns that it knows.
    """

    def __init__(self, members: Sequence[Trained], decode: Decode) -> None:
        """`members` have the same vocabularies (`models.combine`).

        Raises UserError for settings that they or their device cannot follow.
        """
        models = [adapt(member, decode).model for member in members]
        if decode.coverage_penalty:  # by attention, which other threads must not see, nor add to
            models = [build.shallow(model) for model in models]
        if decode.target_length == "given" and not any(model.needs_lengths for model in models):
            raise UserError(
                "decode.target_length=given: no encoding of this model asks for a length; train "
                "one with encoding=ldpe or encoding=lrpe"
            )
        self.decode, self.device = decode, next(models[0].parameters()).device
        self.source_limit = least(model.source_limit for model in models)
        self.target_limit = least(model.target_limit for model in models)
        self.columns: Set[str] = {name for model in models for name in model.columns}
        ranges = (model.column_ranges for model in models)
        self.column_ranges: Mapping[str, range] = common_ranges(ranges)
        self.parallel_batches = cpus() if self.device.type == "cpu" else 1
        self._has_halved = False  # a batch that was too large
        self.models, self.bfloat16 = set_precision(models, decode.precision)

    @property
    def most_workers(self) -> int:
        """As many as torch has threads; 1 on a GPU, and where no process may be forked now."""
        return usable_threads() if self.device.type == "cpu" and may_fork() else 1

    def workers(self, count: int) -> AbstractContextManager[Executor]:
        """Start so many workers, with one thread each and this engine; see WorkerPool."""
        if self.device.type != "cpu":
            raise UserError(f"{count} workers: {self.device} searches for one process; take 1")
        if not can_fork():
            raise UserError(f"{count} workers: only Linux forks them safely; take 1, and threads")
        advice = "give fewer, or a smaller decode.batch_tokens"
        return WorkerPool(count, f"--workers {count}", advice, [self.search, self.cross_attention])

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Find the n_best hypotheses, or fewer, for each source of a batch; best first.

        With decode.method=sample they are n_best samples, in the order in which they were drawn.
        A batch for which a GPU has too little memory is searched in halves, with a warning for the
        first; raises UserError (71) where it is too little for one sentence, or that of a CPU.
        """
        # in inference mode, autocast would not keep the rounded weights for the next step
        no_gradients = torch.no_grad() if self.bfloat16 else torch.inference_mode()
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)
        try:
            with self._within_memory(sources), no_gradients, autocast:
                return self._search_batch(sources, n_best)
        except UserError as error:
            halves = error.code == Exit.NO_MEMORY and self.device.type != "cpu"
            if len(sources) == 1 or not halves:
                raise
        # from here on, no error holds the tensors of the batch
        if not self._has_halved:
            log.warning(TOO_LARGE, self.decode.batch_tokens, self.device)
            self._has_halved = True
        middle = len(sources) // 2
        return self.search(sources[:middle], n_best) + self.search(sources[middle:], n_best)

    def cross_attention(self, pairs: Sequence[Source]) -> list[Weights]:
        """[target, source] of each pair, see `models.cross_attention`."""
        with self._within_memory(pairs):
            return cross_attention([build.shallow(model) for model in self.models], pairs)

    def _within_memory(self, sources: Sequence[Source]) -> AbstractContextManager[None]:
        lengths = [source.length for source in sources]
        return within_memory(lengths, self.decode.batch_tokens, self.device)

    def _search_batch(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Search by the method, the limits and the restrictions that the settings name."""
        decode, required = self.decode, [source.required for source in sources]
        step = with_required(self._step(sources), required, EOS, self.device)
        step = with_new_ngrams(step, decode.no_repeat_ngram)
        limits = torch.tensor([source.limit for source in sources])
        if decode.method == "sample":
            return search(step, self._sampling(sources, limits, n_best), BOS)
        coverage_penalty = None
        if decode.coverage_penalty:
            ids, _ = as_tensors(sources, self.device)
            pieces = (ids != PAD) & (ids != EOS)
            if self.models[0].source_language is not None:
                pieces = F.pad(pieces, (1, 0))  # a language needs no translation
            covering = CoveragePenalty(step, decode.coverage_penalty, pieces, self.models)
            step, coverage_penalty = covering, covering.penalties
        beam = Beam(
            limits,
            beam_size=decode.beam_size,
            length_norm=lambda length: length_penalty(
                decode.pieces_before + length, decode.alpha, decode.length_penalty
            ),
            shrinking=decode.stop == "shrinking",
            coverage_penalty=coverage_penalty,
            eos=EOS,
            device=self.device,
        )
        return [hypotheses[:n_best] for hypotheses in search(step, beam, BOS)]

    def _step(self, sources: Sequence[Source]) -> Step:
        """The log-probabilities of the next token after each prefix of a batch of sources."""
        ids, columns = as_tensors(sources, self.device)
        states = [model.start(ids, columns, self._lengths(model, sources)) for model in self.models]

        def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
            log_probs = []
            for model, state in zip(self.models, states, strict=True):
                if parents is not None:
                    state.reorder(parents)
                log_probs.append(model.step(tokens, state).float().log_softmax(dim=-1))
            mean = log_probs[0]
            if len(log_probs) > 1:
                mean = torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))
            for token in FORBIDDEN[self.decode.unknown]:  # all at once would wait for a GPU
                mean[:, token] = NEVER
            return mean

        return step

    def _sampling(self, sources: Sequence[Source], limits: Tensor, samples: int) -> Sampling:
        decode, sentences = self.decode, [(source.line, source.part) for source in sources]
        return Sampling(
            limits,
            random_numbers(decode.seed, sentences, samples, int(limits.max()) + 1),
            distribution=lambda log_probs: probabilities(
                log_probs, decode.temperature, decode.top_k, decode.top_p
            ),
            eos=EOS,
            device=self.device,
        )

    def _lengths(self, model: Transformer, sources: Sequence[Source]) -> Tensor | None:
        """Desired lengths [batch], eos included; None: not needed."""
        if not model.needs_lengths:
            return None
        if self.decode.reads_lengths:
            lengths = [max(source.columns[LENGTH]) for source in sources]
        else:
            pieces = [len(source.ids) - 1 for source in sources]
            lengths = [max(1, round(self.decode.length_ratio * n)) for n in pieces]
        return to_device(torch.tensor(lengths) + 1, self.device)
