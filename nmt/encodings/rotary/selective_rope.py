"""Movahedi et al. (2025), Selective Rotary Position Embedding: rotary by angles that words choose.

    q'_i = R(a_i) q_i,   k'_j = R(a_j) k_j,   a_t = sum of f_s over s = 0..t,   f_t = c * (V U x)_t

R(a_t) rotates pair b by a_t w_b, w_b = base^(-2b / head_dim), where RoPE rotates it by t w_b. So a
score depends on the words after the key, up to the query. x is the layer's input, each head's part
made a unit vector; c * is a causal convolution of each component over four words, V U a product of
low rank (32 in the authors' configs). This is their code (timurcarstensen/selective-rope) as these
have it: without the gate on f and the constant added to it, which it offers. The paper's text was
not at hand.

Defined for a decoder. In the encoder (our extension) a score depends on the words between query and
key, in either direction.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Projection
from nmt.encodings.recurrence.convolution import causal_convolution
from nmt.encodings.rotary.rotary import Base, Rotary
from nmt.encodings.sinusoids import Layout

TAPS = 4  # words of the convolution


class SelectiveRope(Rotary):
    """Learns U and V for each layer: rank (dim + heads head_dim / 2), and the taps of c."""

    sites = ("encoder", "decoder")  # turns add up along the words of one text
    relative = True
    position_type = "none"

    def __init__(
        self, dims: Dims, base: Base = 500000.0, layout: Layout = "halves", rank: PositiveInt = 32
    ) -> None:
        super().__init__(dims, base, layout)
        pairs = dims.head_dim // 2
        self.down = self.make_table(dims.dim, rank)
        self.up = self.make_table(rank, dims.heads * pairs)
        self.taps = self.make_table(TAPS, pairs, per_head=True)

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate q and k by the sums of f up to each word; V U x of each word is remembered."""
        q, k, v = project(xq, xk, xv)
        x = F.normalize(xk.unflatten(-1, (-1, self.dims.head_dim)), dim=-1).flatten(-2)
        down, up = (p[layer, 0].to(x.dtype) for p in (self.down, self.up))
        new = (x @ down @ up).unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)
        turns = context.remember(self.name, layer, new).double()  # long sums, as of all angles
        sums = causal_convolution(turns, self.taps[layer].double()).cumsum(2)
        last = sums[:, :, -xk.shape[1] :]  # queries and new keys are the last tokens
        a = last * self.frequencies(x.device)  # [batch, heads, query, head_dim / 2]
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = a.cos().to(dtype), a.sin().to(dtype)
        return self.rotate(q, cos, sin), self.rotate(k, cos, sin), v
