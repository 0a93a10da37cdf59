"""Press, Smith, Lewis (2021), Shortformer: position-infused attention.

In every layer sinusoids PE are added to what queries and keys are projected from, and to nothing
else; nothing is added at the bottom:

    q_i = W_Q (x_i + PE(i)),   k_j = W_K (x_j + PE(j)),   v_j = W_V x_j

Values, and so the states of all layers, are free of positions. The paper is about language
models; `where: [encoder, decoder, cross]` also infuses the attention to the source.
"""

from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding, Projection
from nmt.encodings.sinusoids import Denominator, Layout, frequencies, sinusoids


class PositionInfused(Encoding):
    """Adds PE to the inputs of the query and key projections; the same in all layers and heads."""

    def __init__(
        self, dims: Dims, layout: Layout = "interleaved", denominator: Denominator = "paper"
    ) -> None:
        super().__init__(dims)
        self.layout = layout
        self.denominator = denominator
        frequencies(dims.dim)  # refuses an odd width at once

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project x + PE(position) to queries and keys, and x alone to values."""
        pe_q, pe_k = self._pe("query_positions", context), self._pe("new_key_positions", context)
        return project(xq + pe_q.to(xq.dtype), xk + pe_k.to(xk.dtype), xv)

    def _pe(self, which: str, context: Context) -> Tensor:
        """PE [batch | 1, length, dim] in float32."""
        positions: Tensor = getattr(context, which)
        return context.once(
            ("position infused", which, self.layout, self.denominator),
            lambda: sinusoids(positions, self.dims.dim, self.layout, self.denominator),
        )
