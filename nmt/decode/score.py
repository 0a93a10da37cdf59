"""Forced decoding: the log-probabilities of translations that exist already."""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch

from nmt.decode.engine import Source, within_memory
from nmt.decode.lines import LineReader
from nmt.decode.models import as_inputs
from nmt.decode.notes import Notes
from nmt.decode.scheduler import compute_in_batches
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system.device import to_device, to_host
from nmt.system.pool import WorkerPool
from nmt.text.vocab import END


class GivenTranslation(NamedTuple):
    """A translation piece by piece, with log-probabilities."""

    pieces: list[str]  # unknown ones as `<unk>`; the last one is END
    log_probs: list[float]  # natural logarithms, conditional on the source and earlier pieces

    @property
    def log_prob(self) -> float:
        """Of the whole translation, its end included."""
        return sum(self.log_probs)

    @property
    def length(self) -> int:
        """Pieces, the end included."""
        return len(self.log_probs)


def score_translations(
    trained: Trained,
    sources: Iterable[str],
    targets: Iterable[str],
    columns: Mapping[str, Iterable[str]] | None = None,
    *,
    batch_tokens: int = 4000,
    window: int = 2000,
    first: int = 1,
    notes: Notes | None = None,
) -> Iterator[GivenTranslation | None]:
    """Score the translation `targets[i]` of each line `sources[i]`, as the model segments it.

    Reads `window` lines, yields as many, reads on. `columns` are the integers that the model reads
    in addition to the sources, and `first` is the number of the first line. Encodings that read
    the length of the output get the true one. A batch holds at most `batch_tokens` tokens of the
    longer side. Unusual lines are counted in `notes`, and logged after the last one. For a pair
    that neither a batch nor the encoding's table can hold, None is yielded, and after the last line
    RefusedLinesError is raised. Raises UserError: 65 for texts that are not parallel and columns
    that do not fit; 2 for columns that are missing or unknown; 71 where memory is short.
    """
    reader = LineReader(trained, trained.model)
    notes = Notes() if notes is None else notes
    score = partial(_log_probs, trained.model, batch_tokens)
    parallel = reader.lines(sources, columns or {}, targets, first=first)
    for lines in reader.read_pairs(parallel, batch_tokens, window, notes):
        pairs = [pair for line in lines for pair in line.parts]
        scores = compute_in_batches(WorkerPool(), score, pairs, batch_tokens)
        scored = iter([_given(trained, *each) for each in zip(pairs, scores, strict=True)])
        yield from [next(scored) if line.parts else None for line in lines]


def _given(trained: Trained, pair: Source, log_probs: list[float]) -> GivenTranslation:
    if not math.isfinite(sum(log_probs)):
        raise UserError(
            f"line {pair.line}: the model gives no finite log-probability; its weights are no use",
            Exit.DATA,
        )
    return GivenTranslation([*trained.target.vocabulary.pieces(pair.target), END], log_probs)


@torch.inference_mode()
def _log_probs(model: Transformer, batch_tokens: int, pairs: list[Source]) -> list[list[float]]:
    """Log-probabilities of each target's ids, EOS included, in one pass over a batch."""
    device = next(model.parameters()).device
    with within_memory([pair.length for pair in pairs], batch_tokens, device):
        states = model.hidden(*as_inputs(pairs, device))  # [batch, target, dim]
        scores = []
        for row, pair in zip(states, pairs, strict=True):  # each alone: the vocabulary is large
            log_probs = model.logits(row[: len(pair.target)]).float().log_softmax(-1)
            forced = to_device(torch.tensor(pair.target)[:, None], device)
            scores.append(log_probs.gather(1, forced)[:, 0])  # [target] of [target, vocab]
        return [row.tolist() for row in to_host(scores)]
