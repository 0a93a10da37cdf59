"""Tan, Yang, Courville, Panda, Shen (2025), Scaling Stick-Breaking Attention.

    b_ij = sigmoid(e_ij);   p_ij = b_ij prod_{l = j+1..i-1} (1 - b_il),   j < i

A stick is broken from the newest key back to the oldest: each takes the share b of what those after
it left, so that what is nearer comes first, without any position. In the authors' code
(shawntan/stickbreaking-attention) a token does not see itself unless attend_current says so, and
what is left of the stick, r_i = 1 - sum_j p_ij, is handed back. Without an option for it the first
token sees nothing, and its output is 0. remainder=true gives it to the token's own value, as their
tests once did; remainder_vector=true adds r_i times a vector that each head of a layer learns, from
zero on, as the models that they trained do (head_bias in IBM/dolomite-engine).

Defined for a decoder. In the encoder (our extension) half of the heads break the stick back to the
first word, and half on to the last. Across (our extension) it is broken from the end of the source
back, as if the target followed it; no key is the query's own there, so remainder=true does nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding


class StickBreaking(Encoding):
    """Breaks a stick instead of softmax; learns at most vectors for what is left of it."""

    vector: nn.Parameter | None  # [layers, heads, 1, head_dim]

    relative = True
    position_type = "none"

    def __init__(
        self,
        dims: Dims,
        attend_current: bool = False,
        remainder: bool = False,
        remainder_vector: bool = False,
    ) -> None:
        super().__init__(dims)
        if remainder and remainder_vector:
            raise ValueError("remainder=true, remainder_vector=true: give what is left to one")
        if dims.site == "encoder" and dims.heads % 2:
            raise ValueError(
                f"{dims.heads} heads cannot be halved, one half to look ahead in the encoder; "
                "where=[decoder,cross] leaves it out"
            )
        self.attend_current, self.remainder = attend_current, remainder
        shape = (dims.layers, dims.heads, 1, dims.head_dim)
        self.vector = nn.Parameter(torch.zeros(shape)) if remainder_vector else None

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """Shares of the sticks of scores e [batch, heads, query, key]; they add up to 1 at most."""
        p = self._weights(e, context)
        if self.vector is not None:
            self._rest(p, layer, context)
        return p

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add the rest of each stick times the layer's vectors [heads, 1, head_dim]."""
        if self.vector is None or p is None:
            return o
        return o + self._rest(p, layer, context).to(p.dtype) * self.vector[layer].to(p.dtype)

    def _rest(self, p: Tensor, layer: int, context: Context) -> Tensor:
        """What is left of each stick: that of `normalise`, as the p of `outputs` is after dropout.

        Pictures give `outputs` alone a p.
        """
        key = ("left of the sticks", self.name, layer)
        return context.once(key, lambda: 1 - p.sum(-1, keepdim=True))

    def _weights(self, e: Tensor, context: Context) -> Tensor:
        """Shares [batch, heads, query, key] of the sticks of scores e."""
        every = torch.ones_like(e[:1, :1], dtype=torch.bool)
        allowed = every if context.allowed is None else context.allowed
        if context.site == "cross":
            return shares(e, allowed)
        query, key = context.indices
        ahead = key[:, None, None, :] - query[:, None, :, None]  # [batch | 1, 1, query, key]
        behind = ahead <= 0 if self.attend_current else ahead < 0
        if context.site == "encoder":
            back, forward = e.chunk(2, dim=1)
            before = ahead >= 0 if self.attend_current else ahead > 0
            ahead_shares = shares(forward.flip(-1), (allowed & before).flip(-1)).flip(-1)
            p = torch.cat([shares(back, allowed & behind), ahead_shares], dim=1)
        else:
            p = shares(e, allowed & behind)
        if not self.remainder:
            return p
        itself = (ahead == 0) & allowed
        return p + itself * (1 - p.sum(-1, keepdim=True))


def shares(e: Tensor, allowed: Tensor) -> Tensor:
    """The share of each key where `allowed` is true, the last one first: as e, [.., key].

    Products are sums of logarithms, for they are of many small numbers.
    """
    left = F.logsigmoid(-e).masked_fill(~allowed, 0)  # of a stick, by each key
    after = F.pad(left[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)  # by all keys that follow
    return (F.logsigmoid(e) + after).exp().masked_fill(~allowed, 0)
