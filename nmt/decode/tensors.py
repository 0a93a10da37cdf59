"""Sources, and given translations of them, as tensors padded on the right."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.decode.sources import ForcedPair, Source
from nmt.system.device import to_device
from nmt.text.vocab import BOS, PAD


def as_tensors(sources: Sequence[Source], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids [batch, source] and columns [batch, source | 1], padded on the right."""
    columns = {
        name: _padded([source.columns[name] for source in sources], device)
        for name in sources[0].columns
    }
    return _padded([source.ids for source in sources], device), columns


def as_inputs(
    pairs: Sequence[ForcedPair], device: torch.device
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """What `Transformer.hidden` reads: sources, targets behind BOS without EOS, and columns."""
    source, columns = as_tensors([pair.source for pair in pairs], device)
    return source, _padded([[BOS, *pair.target[:-1]] for pair in pairs], device), columns


def _padded(rows: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    """[rows, longest], padded on the right."""
    tensors = [torch.tensor(row) for row in rows]
    return to_device(pad_sequence(tensors, batch_first=True, padding_value=PAD), device)
