"""Wang, Tu, Wang, Shi (2019), Self-Attention with Structural Position Representations: absolute.

x_t + tanh(U PE(t) + V PE(abs(t))), abs(t) the steps from word t up to the root of the dependency
tree. The paper found depth alone much worse than depth fused with the place in the sentence. Its
relative form is encoding=spr_relative.
"""

from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.positions_columns import Depth, Heads
from nmt.encodings.trees.fusion import Fusion


class SprAbsolute(Encoding):
    """Adds a fusion of place and tree depth to the embeddings: 2 dim^2 parameters.

    All pieces of a word have its depth. Encoder only: a target has no tree while it is written.
    """

    sites = ("encoder",)  # columns are parallel to the source
    zeros = ("fusion",)

    def __init__(self, dims: Dims, tree: Heads = "heads") -> None:
        depth = Depth(tree)
        super().__init__(dims)
        self.columns |= depth.columns
        self.depth = depth
        self.fusion = Fusion(dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the fusion to x [batch, query, dim]."""
        return self.fusion(x, context.queries, self.depth.assign(context.queries, context))
