"""Sources as tensors, padded on the right."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.data.vocab import PAD
from nmt.decode.sources import Source
from nmt.machine.device import to_device


def as_tensors(sources: Sequence[Source], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids [batch, source] and columns [batch, source | 1], padded on the right."""
    columns = {
        name: padded([source.columns[name] for source in sources], device)
        for name in sources[0].columns
    }
    return padded([source.ids for source in sources], device), columns


def padded(rows: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    """[rows, longest], padded on the right."""
    tensors = [torch.tensor(row) for row in rows]
    return to_device(pad_sequence(tensors, batch_first=True, padding_value=PAD), device)
