"""Forced decoding: how likely a model finds translations that somebody else has written."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.data.grouping import by_length
from nmt.data.vocab import BOS, EOS, PAD
from nmt.decode.columns import Columns
from nmt.decode.notes import Note
from nmt.decode.sources import Source, SourceReader
from nmt.errors import Exit, UserError, is_want_of_memory
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained

END = "</s>"  # stands for the end of a sentence among pieces


class GivenTranslation(NamedTuple):
    """A translation piece by piece, and how likely the model finds each piece."""

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
    batch_tokens: int = 4000,
) -> list[GivenTranslation]:
    """Score the translation `targets[i]` of each line `sources[i]`, as the model segments it.

    `columns` are the integers beside the sources that the model asks for. Encodings that want the
    length of the output get the true one. A batch holds about `batch_tokens` tokens of the longer
    side. Raises UserError: 65 for texts that are not parallel, lines longer than the encoding's
    table, and columns that do not fit; 2 for columns that are missing or unknown; 71 where memory
    is short.
    """
    sources, targets = list(sources), list(targets)
    if len(sources) != len(targets):
        raise UserError(
            f"{len(sources)} sources, but {len(targets)} translations; the two must be parallel",
            Exit.DATA,
        )
    window = max(1, len(sources))
    found = stream(trained, sources, targets, columns, batch_tokens=batch_tokens, window=window)
    return [given for given in found if given is not None]  # all: what is too long is raised


def stream(
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
    """Score pair by pair as `score` does; reads `window` lines, gives back as many, reads on.

    `first` is the number of the first line. A pair that the encoding's table cannot hold is counted
    in `too_long`, and None is given back for it. Raises what `score` does; without `too_long` also
    for such pairs, before any pair of their window is scored.
    """
    reader = SourceReader(trained.source.segmenter, trained.settings, trained.model)
    beside = Columns(columns or {}, reader.kinds(columns or {}))
    lines, translations = iter(sources), iter(targets)
    while some := list(islice(lines, window)):
        given = list(islice(translations, len(some)))
        if len(given) < len(some):
            raise _unparallel(f"end after line {first - 1 + len(given)}, but the sources go on")
        rows, pairs = beside.read(len(some), first), []
        for number, (line, target, row) in enumerate(zip(some, given, rows, strict=True), first):
            text = line.removesuffix("\n")
            source = reader.read(text, trained.source.ids(text), row, number)
            pair = ForcedPair(number, source, trained.target.ids(target.removesuffix("\n")))
            pairs.append(pair if _fits(trained.model, pair, too_long) else None)
        yield from _window(trained, pairs, batch_tokens)
        first += len(some)
    beside.end(first - 1)
    if next(translations, None) is not None:
        raise _unparallel(f"go on, but the sources end after line {first - 1}")


class ForcedPair(NamedTuple):
    """A line and its translation in numbers."""

    line: int  # its number
    source: Source
    target: list[int]  # ids, ending in EOS


def _unparallel(what: str) -> UserError:
    return UserError(f"the translations {what}; the two must be parallel", Exit.DATA)


def _fits(model: Transformer, pair: ForcedPair, too_long: Note | None) -> bool:
    """Whether the encoding's tables hold a pair; one that is too long is counted, or raised."""
    limits = model.limits(training=False)
    for side, length, limit in (
        ("source", len(pair.source.ids), limits.source),
        ("translation", len(pair.target), limits.target),
    ):
        if limit is None or length <= limit:  # with eos
            continue
        if too_long is None:
            raise UserError(
                f"line {pair.line}: the {side} has {length - 1} pieces; the encoding holds "
                f"{limit - 1}; leave the line out",
                Exit.DATA,
            )
        too_long.add(pair.line, length - 1)
        return False
    return True


def _window(
    trained: Trained, pairs: list[ForcedPair | None], batch_tokens: int
) -> list[GivenTranslation | None]:
    """Score the pairs that are there in batches of like length; in their order."""
    there = [pair for pair in pairs if pair is not None]
    scores: dict[int, list[float]] = {}  # number of the line -> log-probabilities
    lengths = [max(len(pair.source.ids), len(pair.target)) for pair in there]
    for group in by_length(lengths, batch_tokens):
        batch = [there[place] for place in group]
        try:
            found = _log_probs(trained.model, batch)
        except (RuntimeError, MemoryError) as error:
            if not is_want_of_memory(error):
                raise
            raise UserError(
                f"batch_tokens={batch_tokens}: too much for the memory; give fewer",
                Exit.NO_MEMORY,
            ) from None
        scores.update(zip((pair.line for pair in batch), found, strict=True))
    return [None if pair is None else _given(trained, pair, scores[pair.line]) for pair in pairs]


def _given(trained: Trained, pair: ForcedPair, log_probs: list[float]) -> GivenTranslation:
    if not math.isfinite(sum(log_probs)):
        raise UserError(
            f"line {pair.line}: the model gives no finite log-probability; its weights are no use",
            Exit.DATA,
        )
    return GivenTranslation(_pieces(trained, pair.target), log_probs)


@torch.inference_mode()
def _log_probs(model: Transformer, pairs: list[ForcedPair]) -> list[list[float]]:
    """Log-probabilities of each target's ids, EOS included, in one pass over a batch."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    device = next(model.parameters()).device

    def padded(rows: Iterable[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)

    columns = {
        name: padded(source.columns[name] for source in sources) for name in sources[0].columns
    }
    prefixes = padded([BOS, *ids[:-1]] for ids in targets)  # [batch, target]
    source = padded(source.ids for source in sources)  # [batch, source]
    states = model.hidden(source, prefixes, columns).states  # [batch, target, dim]
    scores = []
    for row, ids in zip(states, targets, strict=True):  # a row at a time: the vocabulary is large
        log_probs = model.logits(row[: len(ids)]).float().log_softmax(-1)  # [target, vocab]
        forced = torch.tensor(ids, device=device)[:, None]
        scores.append(log_probs.gather(1, forced)[:, 0].tolist())
    return scores


def _pieces(trained: Trained, ids: list[int]) -> list[str]:
    return [*trained.target.vocabulary.pieces(ids[: ids.index(EOS)]), END]
