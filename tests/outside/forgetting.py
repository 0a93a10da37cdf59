"""The forget gates of FoX (Lin et al. 2025), as a package of somebody else's has them."""

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, Projection


class Forgetting(Encoding):
    """A key fades by the words between it and the query."""

    relative = True
    position_type = "none"

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.gates = nn.ModuleList(nn.Linear(dims.dim, dims.heads) for _ in range(dims.layers))

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Remember log f of each new key: [batch, heads, new, 1]."""
        log_f = F.logsigmoid(self.gates[layer](xk)).mT[..., None]
        context.remember(self.name, layer, log_f)
        return project(xq, xk, xv)

    def bias(self, layer: int, context: Context) -> Tensor:
        """The sum of log f between key and query, or from key to end of the source."""
        log_f = context.recall(self.name, layer)[..., 0]  # [batch, heads, key]
        if context.site == "cross" and context.allowed is not None:
            log_f = log_f.masked_fill(~context.allowed.any(2), 0)
        sums = log_f.cumsum(-1)
        if context.site == "cross":
            return (sums[..., -1:] - sums)[..., None, :]
        queries = sums[..., -context.query_positions.shape[1] :, None]
        return -(queries - sums[..., None, :]).abs()
