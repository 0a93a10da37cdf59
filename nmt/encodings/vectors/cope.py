"""Golovneva, Wang, Weston, Sukhbaatar (2024), Contextual Position Encoding (CoPE).

Each key has a gate g_ij = sigmoid(q_i . k_j / sqrt(head_dim)), and its position is how much has
been let through from it up to the query, c_ij = sum of g_im over m = j..i, at most counts - 1.
So a head can count what it cares for: words, names, verbs. z_i[p] = q_i . E[p] is read between
whole p by linear interpolation, e_ij = q_i . k_j / sqrt(head_dim) + z_i[c_ij].

That heads share E is from memory; the paper's own text was not at hand. The paper is causal; in
the encoder (our extension) keys ahead count the gates from the query up to them.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from nmt.config.check import Between
from nmt.encodings.base import Context, Dims, Encoding, at_least_float32


class Cope(Encoding):
    """Learns a vector for each count 0..counts - 1, per layer: counts x head_dim.

    Counts follow the order of the tokens, whatever positions they have. E starts at zero.
    """

    sites = ("encoder", "decoder")  # one counts between words of one sentence
    relative = True
    position_type = "none"
    zeros = ("weight",)
    weight: nn.Parameter  # E [layers, 1, positions, head_dim]

    def __init__(self, dims: Dims, counts: Annotated[int, Between(2)] = 64) -> None:
        super().__init__(dims)
        self.score_scale = dims.head_dim**-0.5  # which its gates rely on
        self.counts = counts
        self.weight = nn.Parameter(torch.zeros(dims.layers, 1, counts, dims.head_dim))

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add sqrt(head_dim) z_i[c_ij], which becomes z_i[c_ij] by the scaling."""
        scale = self.dims.head_dim**-0.5
        precise = at_least_float32(s)  # sums of many gates
        gates = (precise * scale).sigmoid()
        if context.allowed is not None:
            gates = gates.masked_fill(~context.allowed, 0)  # neither padding nor future counts
        count = self._count(gates).clamp(max=self.counts - 1)  # [batch, heads, query, key]
        z = q @ self.pick(self.weight, layer).mT.to(q.dtype)  # [.., query, count]
        z = z.to(precise.dtype)
        below = count.floor()
        fraction = count - below
        low, high = z.gather(-1, below.long()), z.gather(-1, count.ceil().long())
        return s + (low + fraction * (high - low)) / scale

    def _count(self, gates: Tensor) -> Tensor:
        """Sums of gates [.., query, key] from each key to the query, both included."""
        if self.dims.site == "decoder":  # nothing ahead has a gate
            return _reversed_cumsum(gates)
        n = gates.shape[-1]
        back = torch.ones(n, n, dtype=torch.bool, device=gates.device).tril()
        ahead = gates.masked_fill(~back.T, 0).cumsum(-1)
        return torch.where(back, _reversed_cumsum(gates.masked_fill(~back, 0)), ahead)


def _reversed_cumsum(gates: Tensor) -> Tensor:
    return gates.flip(-1).cumsum(-1).flip(-1)
