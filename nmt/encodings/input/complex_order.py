"""Wang, Zhao, Lioma, Li, Zhang, Simonsen (2020), Encoding word order in complex embeddings.

A word u is a function of its position t, with amplitude r, frequency w and phase theta per word
and component:

    z_t = r_u exp(i (w_u t + theta_u))

and the Transformer computes with complex states. Real and imaginary part are two streams that go
through the same real projections and norms; they meet in the attention score

    e_ij = |sum_d q_d k_d| / sqrt(2 head_dim)          product: bilinear, as in the authors' code
    e_ij = |sum_d q_d conj(k_d)| / sqrt(2 head_dim)    product: hermitian

whose probabilities serve both streams, in the complex feed-forward sublayers (model.feedforward)
and in the output real^2 + imaginary^2 of the decoder. In the bilinear product phases add; in the
hermitian one they are subtracted, so with shared frequencies it sees differences of positions only.

The authors' translation code (frequency: shared, phase: false, learn: false) freezes the
frequencies 10000^(-2 [k/2] / dim) for all words; the paper learns r, w and theta. Initial w and
theta are in neither: here each word's frequencies are these times uniform [0.5, 1.5), and
phases are uniform in [-pi, pi). Reconstructed in part; the paper's own text was not at hand.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import frequencies


class ComplexOrder(Encoding):
    """Makes embeddings complex: two streams, side by side, for each row.

    frequency=word and phase=true each add a table [vocab, dim] at the encoder and at the decoder,
    frequency=shared dim numbers; learn=false keeps all of them as drawn. Needs
    where: [encoder, decoder, cross].
    """

    streams = 2
    reads_queries_or_keys = False  # products of whole ones
    frequency: Tensor  # [vocab, dim] or [dim]
    phase: Tensor  # [vocab, dim]

    def __init__(
        self,
        dims: Dims,
        frequency: Literal["word", "shared"] = "word",
        phase: bool = True,
        learn: bool = True,
        product: Literal["bilinear", "hermitian"] = "bilinear",
    ) -> None:
        super().__init__(dims)
        self.score_scale = (2 * dims.head_dim) ** -0.5
        self.product = product
        self.by_word = frequency == "word"
        self.has_phase = phase
        embeds = dims.site != "cross"  # attention to the source has no embeddings of its own
        if embeds and (self.by_word or phase) and dims.vocab < 1:
            raise ValueError("frequency=word and phase=true need the size of the vocabulary")
        if embeds:
            w = frequencies(dims.dim).repeat_interleave(2).to(torch.float32)  # [dim]
            if self.by_word:
                w = w * (0.5 + torch.rand(dims.vocab, dims.dim))
            self._add_table("frequency", w, learn)
        if embeds and phase:
            self._add_table("phase", math.pi * (2 * torch.rand(dims.vocab, dims.dim) - 1), learn)

    def _add_table(self, name: str, t: Tensor, learn: bool) -> None:
        if learn:
            self.register_parameter(name, nn.Parameter(t))
        else:  # saved with the model all the same
            self.register_buffer(name, t)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Turn amplitudes x [batch x 2, query, dim], alike in both streams, into their parts."""
        if context.tokens is None and (self.by_word or self.has_phase):
            raise ValueError("frequency=word and phase=true need the words of the text")
        ids = None if context.tokens is None else context.tokens[0::2]
        w = self.frequency[ids] if self.by_word else self.frequency
        at = context.query_positions[0::2].to(torch.float64)
        angle = at[..., None] * w  # [batch | 1, query, dim]
        if self.has_phase:
            angle = angle + self.phase[ids]
        parts = [x[0::2] * angle.cos().to(x.dtype), x[1::2] * angle.sin().to(x.dtype)]
        return torch.stack(parts, dim=1).flatten(0, 1)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Replace q k^T by the modulus; what entries before it added stays."""
        return self._moduli(q, k) + (s - q @ k.mT)  # in this order both streams get the same bits

    def _moduli(self, q: Tensor, k: Tensor) -> Tensor:
        """Of the complex product, for both streams: [batch x 2, heads, query, key]."""
        q_real, q_imaginary = q[0::2], q[1::2]
        k_real, k_imaginary = k[0::2].mT, k[1::2].mT
        dtype = torch.promote_types(q.dtype, torch.float32)  # squares of bfloat16 are too coarse
        same = (q_real @ k_real).to(dtype), (q_imaginary @ k_imaginary).to(dtype)
        mixed = (q_real @ k_imaginary).to(dtype), (q_imaginary @ k_real).to(dtype)
        if self.product == "bilinear":
            real, imaginary = same[0] - same[1], mixed[0] + mixed[1]
        else:
            real, imaginary = same[0] + same[1], mixed[1] - mixed[0]
        return _modulus(real, imaginary).repeat_interleave(2, 0)

    def readout(self, x: Tensor, context: Context) -> Tensor:
        """Merge a decoder's streams [batch x 2, query, dim] to [batch, query, dim]."""
        return x if context.site == "encoder" else x[0::2].square() + x[1::2].square()


def _modulus(real: Tensor, imaginary: Tensor) -> Tensor:
    """|real + i imaginary|, with gradient zero where it vanishes, not infinite."""
    square = real.square() + imaginary.square()
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)
