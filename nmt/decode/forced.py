"""Forced decoding: the log-probabilities of given translations."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import torch

from nmt.data.grouping import by_length
from nmt.data.vocab import BOS, END, EOS
from nmt.decode.engine import within_memory
from nmt.decode.notes import Note
from nmt.decode.sources import Source, SourceReader
from nmt.decode.streams import windows
from nmt.decode.tensors import as_tensors, padded
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained


class GivenTranslation(NamedTuple):
    """A translation piece by piece, with log-probabilities."""

    pieces: list[str]  # unknown ones as `<unk>`; the last one is END
    log_probs: list[float]  # natural logarithms, each given the source and the pieces before

    @property
    def log_prob(self) -> float:
        """Of the whole translation, its end included."""
        return sum(self.log_probs)

    @property
    def length(self) -> int:
        """Pieces, the end included."""
        return len(self.log_probs)


def score(
    trained: Trained,
    sources: Iterable[str],
    targets: Iterable[str],
    columns: Mapping[str, Iterable[str]] | None = None,
    *,
    batch_tokens: int = 4000,
    window: int = 2000,
    first: int = 1,
    too_long: Note | None = None,
) -> Iterator[GivenTranslation | None]:
    """Score the translation `targets[i]` of each line `sources[i]`, as the model segments it.

    Reads `window` lines, yields as many, reads on. `columns` are the integers that the model reads
    in addition to the sources, and `first` is the number of the first line. Encodings that read
    the length of the output get the true one. A batch holds about `batch_tokens` tokens of the
    longer side. A pair that the encoding's table cannot hold is counted in `too_long`, and None is
    yielded for it; without `too_long` it is an error before any pair of its window is scored.
    Raises UserError: 65 for such a pair, for texts that are not parallel and columns that do not
    fit; 2 for columns that are missing or unknown; 71 where memory is short.
    """
    reader = SourceReader(trained.source.segmenter, trained.settings, trained.model)
    columns, limits = columns or {}, trained.model.limits(training=False)
    lines = reader.lines(sources, columns, targets, "translations", first)
    for window_lines in windows(lines, window):
        pairs = []
        for line in window_lines:
            text, target = trained.source.protection.pair(line.text, line.target)
            source = reader.source(text, trained.source.ids(text), line.columns, line.number)
            pair = ForcedPair(source, trained.target.ids(target))
            pairs.append(pair if fits(pair, *limits, too_long) else None)
        yield from _window(trained, pairs, batch_tokens)


class ForcedPair(NamedTuple):
    """A line and its translation in numbers."""

    source: Source
    target: list[int]  # ids, ending in EOS


def fits(
    pair: ForcedPair, source: int | None, target: int | None, too_long: Note | None = None
) -> bool:
    """Whether tables of these sizes hold a pair; one that is too long is counted, or raised."""
    for side, length, limit in (
        ("source", len(pair.source.ids), source),
        ("translation", len(pair.target), target),
    ):
        if limit is None or length <= limit:  # with eos
            continue
        if too_long is None:
            raise UserError(
                f"line {pair.source.line}: the {side} has {length - 1} pieces; the encoding holds "
                f"{limit - 1}; leave the line out",
                Exit.DATA,
            )
        too_long.add(pair.source.line, length - 1)
        return False
    return True


def _window(
    trained: Trained, pairs: list[ForcedPair | None], batch_tokens: int
) -> list[GivenTranslation | None]:
    """Score the pairs that are not None in batches of like length; in their order."""
    scorable = [pair for pair in pairs if pair is not None]
    log_probs: list[list[float]] = [[] for _ in scorable]
    lengths = [max(len(pair.source.ids), len(pair.target)) for pair in scorable]
    for group in by_length(lengths, batch_tokens):
        with within_memory(f"batch_tokens={batch_tokens}: too much for the memory; give fewer"):
            scores = _log_probs(trained.model, [scorable[place] for place in group])
        for place, pair_log_probs in zip(group, scores, strict=True):
            log_probs[place] = pair_log_probs
    scored = map(_scored, repeat(trained), scorable, log_probs)
    return [None if pair is None else next(scored) for pair in pairs]


def _scored(trained: Trained, pair: ForcedPair, log_probs: list[float]) -> GivenTranslation:
    line, ids = pair.source.line, pair.target
    if not math.isfinite(sum(log_probs)):
        raise UserError(
            f"line {line}: the model gives no finite log-probability; its weights are no use",
            Exit.DATA,
        )
    pieces = trained.target.vocabulary.pieces(ids[: ids.index(EOS)])
    return GivenTranslation([*pieces, END], log_probs)


@torch.inference_mode()
def _log_probs(model: Transformer, pairs: list[ForcedPair]) -> list[list[float]]:
    """Log-probabilities of each target's ids, EOS included, in one pass over a batch."""
    device = next(model.parameters()).device
    source, columns = as_tensors([pair.source for pair in pairs], device)  # [batch, source]
    targets = [pair.target for pair in pairs]
    prefixes = padded([[BOS, *ids[:-1]] for ids in targets], device)  # [batch, target]
    states = model.hidden(source, prefixes, columns).states  # [batch, target, dim]
    scores = []
    for row, ids in zip(states, targets, strict=True):  # a row at a time: the vocabulary is large
        log_probs = model.logits(row[: len(ids)]).float().log_softmax(-1)  # [target, vocab]
        forced = torch.tensor(ids, device=device)[:, None]
        scores.append(log_probs.gather(1, forced)[:, 0].tolist())
    return scores
