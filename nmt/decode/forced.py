"""Forced decoding: how likely a model finds translations that somebody else has written."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.data.grouping import by_length
from nmt.data.vocab import BOS, EOS, PAD
from nmt.decode.columns import Columns
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
    sources = [line.removesuffix("\n") for line in sources]
    targets = [line.removesuffix("\n") for line in targets]
    if len(sources) != len(targets):
        raise UserError(
            f"{len(sources)} sources, but {len(targets)} translations; the two must be parallel",
            Exit.DATA,
        )
    read = _read(trained, sources, columns or {})
    ids = [trained.target.ids(line) for line in targets]  # each ends in EOS
    _refuse_long(trained.model, [len(source.ids) for source in read], [len(i) for i in ids])
    scores: dict[int, list[float]] = {}
    lengths = [max(len(source.ids), len(i)) for source, i in zip(read, ids, strict=True)]
    for group in by_length(lengths, batch_tokens):
        try:
            log_probs = _log_probs(trained.model, [read[i] for i in group], [ids[i] for i in group])
        except (RuntimeError, MemoryError) as error:
            if not is_want_of_memory(error):
                raise
            raise UserError(
                f"batch_tokens={batch_tokens}: too much for the memory; give fewer",
                Exit.NO_MEMORY,
            ) from None
        scores.update(zip(group, log_probs, strict=True))
    return [
        GivenTranslation(_pieces(trained, numbers), scores[place])
        for place, numbers in enumerate(ids)
    ]


def _read(
    trained: Trained, sources: list[str], columns: Mapping[str, Iterable[str]]
) -> list[Source]:
    """The lines of the source in numbers, with the columns beside them."""
    reader = SourceReader(trained)
    beside = Columns(columns, reader.kinds(columns))
    rows = beside.read(len(sources), 1)
    beside.end(len(sources))
    return [
        reader.read(line, trained.source.ids(line), row, f"line {number}")
        for number, (line, row) in enumerate(zip(sources, rows, strict=True), start=1)
    ]


def _refuse_long(model: Transformer, sources: list[int], targets: list[int]) -> None:
    """Raise UserError (65) for a line that an encoding's table cannot hold; lengths with eos."""
    limits = model.limits(training=False)
    for side, lengths, limit in (
        ("source", sources, limits.source),
        ("translation", targets, limits.target),
    ):
        for number, length in enumerate(lengths, start=1):
            if limit is not None and length > limit:
                raise UserError(
                    f"line {number}: the {side} has {length - 1} pieces; the encoding holds "
                    f"{limit - 1}; leave the line out",
                    Exit.DATA,
                )


@torch.inference_mode()
def _log_probs(
    model: Transformer, sources: list[Source], targets: list[list[int]]
) -> list[list[float]]:
    """Log-probabilities of each target's ids, EOS included, in one pass over a batch."""
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
