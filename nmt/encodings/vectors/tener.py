"""Yan, Deng, Li, Qiu (2019), TENER: sharp attention, aware of distance and direction.

e_ij = q_i . k_j + q_i . R[i - j] + u . k_j + v . R[i - j],  k_j = the head's slice of x_j itself,
R[x] the sinusoids of width head_dim at x: sines, then cosines. Not divided by sqrt(head_dim).

Unlike Transformer-XL, R is not projected, so its antisymmetric sines tell left from right. Neither
are the keys (default). The authors' code differs from their paper: it projects the keys
(key_projection), adds a fourth term k_j . R[j - i] (key_term), and has other frequencies
(denominator=tensor2tensor). It has the opposite sign in all R, which is a mirror image: reflecting
the sine components of all queries and keys turns one into the other.

Beware: without the division the softmax is nearly saturated at the start where heads are wide.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import Denominator, frequencies
from nmt.encodings.vectors.distances import sinusoid_products


class Tener(Encoding):
    """Adds fixed sinusoids of the distance as keys, and learned queries u, v per head and layer.

    2 dim parameters per layer; without key_projection attention has dim^2 + dim fewer.
    """

    relative = True
    distances_only = True

    def __init__(
        self,
        dims: Dims,
        key_projection: bool = False,
        key_term: bool = False,
        scaled: bool = False,
        denominator: Denominator = "paper",
    ) -> None:
        super().__init__(dims)
        self.projects_keys = key_projection
        self.score_scale = None if scaled else 1.0
        frequencies(dims.head_dim)  # refuses an odd width at once
        self.key_term = key_term
        self.denominator = denominator
        self.u = self.make_table(1, dims.head_dim, per_head=True)  # [layers, heads, 1, head_dim]
        self.v = self.make_table(1, dims.head_dim, per_head=True)
        with torch.no_grad():  # Xavier normal over heads and head_dim, as in the authors' code
            for p in self.parameters():
                p.normal_(0, (2 / (dims.heads + dims.head_dim)) ** 0.5)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add the terms to s [batch, heads, query, key]."""
        u, v = self.pick(self.u, layer).to(q.dtype), self.pick(self.v, layer).to(q.dtype)
        w = frequencies(self.dims.head_dim, self.denominator, device=q.device)
        s = s + u @ k.mT + sinusoid_products(q + v, None, w, context)
        if self.key_term:
            s = s + sinusoid_products(k, None, w, context, keys=True)
        return s
