"""Wang, Tu, Wang, Shi (2019), Self-Attention with Structural Position Representations: absolute.

x_t + tanh(U PE(t) + V PE(abs(t))), abs(t) the steps from word t up to the root of the dependency
tree. The paper found depth alone much worse than depth fused with the place in the sentence. Its
relative form is encoding=spr_relative.
"""

from typing import ClassVar

from torch import Tensor

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Positions
from nmt.encodings.fusion import Fusion
from nmt.encodings.positions_columns import Depth


class SprAbsolute(Encoding):
    """Adds a fusion of place and tree depth to the embeddings: 2 dim^2 parameters.

    All pieces of a word have its depth. Encoder only: a target has no tree while it is written.
    """

    takes: ClassVar[str] = "real"

    def __init__(
        self, dims: Dims, positions: Positions | None = None, heads: str = "heads"
    ) -> None:
        super().__init__(dims, positions)
        self.depth = Depth(heads)
        if dims.site not in self.depth.sites:
            raise ValueError(f"where={dims.site}: the column {heads!r} stands beside the source")
        self.fusion = Fusion(dims.dim)

    @property
    def columns(self) -> frozenset[str]:
        """That of the heads, besides those of the first position."""
        return super().columns | self.depth.columns

    def zero_initialise(self) -> bool:
        """Zero matrices add nothing."""
        return self.fusion.zero_initialise()

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the fusion to x [batch, query, dim]."""
        return self.fusion(x, context.queries, self.depth.assign(context.queries, context))
