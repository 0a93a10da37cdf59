"""The length of the translation, predicted from the source."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LengthHead(nn.Module):
    """Predicts log(target length / source length) from the mean of the encoder's states.

    Oka et al. (2020) give a length constraint the prediction of a model of its own; here it is a
    linear map that sees the encoder but does not change it: its input carries no gradient.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, 1)

    def _log_ratio(self, memory: Tensor, allowed: Tensor) -> Tensor:
        """Read states [batch, source, dim] where allowed [batch, 1, 1, source]: [batch]."""
        real = allowed[:, 0, 0, :, None].to(memory.dtype)  # [batch, source, 1]
        mean = (memory.detach() * real).sum(1) / real.sum(1).clamp(min=1)
        return self.out(mean).squeeze(-1).float()

    def loss(self, memory: Tensor, allowed: Tensor, lengths: Tensor) -> Tensor:
        """The mean squared error of the log ratio, for target lengths [batch]."""
        source = allowed.sum((1, 2, 3)).clamp(min=1)
        return F.mse_loss(self._log_ratio(memory, allowed), (lengths / source).log())

    def forward(self, memory: Tensor, allowed: Tensor) -> Tensor:
        """The expected length of each target, eos included, at least 2: [batch]."""
        source = allowed.sum((1, 2, 3))
        expected = source * self._log_ratio(memory, allowed).exp()
        return expected.round().clamp(min=2).to(torch.long)
