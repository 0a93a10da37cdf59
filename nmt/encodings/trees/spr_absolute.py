"""Wang, Tu, Wang, Shi (2019), Self-Attention with Structural Position Representations: absolute.

x_t + tanh(U PE(t) + V PE(abs(t))), abs(t) the steps from word t up to the root of the dependency
tree. The paper found depth alone much worse than depth fused with the index in the sentence. Its
relative form is encoding=spr_relative.
"""

from nmt.encodings.base import Dims
from nmt.encodings.positions_columns import Depth, Heads
from nmt.encodings.trees.xl_pe import XlPe


class SprAbsolute(XlPe):
    """Adds a fusion of position and tree depth to the embeddings: 2 dim^2 parameters.

    All pieces of a word have its depth. Encoder only: a target has no tree while it is written.
    """

    def __init__(self, dims: Dims, tree: Heads = "heads") -> None:
        super().__init__(dims, tree)
        self.second = Depth(tree)
