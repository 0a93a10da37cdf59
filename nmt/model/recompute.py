"""Gradient checkpointing: keep the input of a layer, and compute the rest of it a second time.

Chen, Xu, Zhang, Guestrin (2016), Training Deep Nets with Sublinear Memory Cost, with one segment
per layer: a pass keeps one layer's insides instead of those of all, for one more forward pass.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.encodings.context import Context
from nmt.encodings.passes import copied

RunLayer = Callable[[nn.Module, Tensor, int, Sequence[Context]], Tensor]
"""`run(layer, x [batch, length, dim], number, contexts) -> x`: one layer, with all it needs."""


def recomputed(run: RunLayer) -> RunLayer:
    """The same computation, of which the graph of gradients holds the inputs x and little else.

    In the backward pass a layer is computed again, to the same bits: torch restores the
    random state from before the layer, and the contexts are given as they were then. So what a
    layer is the first to compute or to draw (`Context.once`) is made again, at its old place among
    the tensors and the random numbers of the layer, and no encoding need know of all this.
    """

    def run_recomputed(
        layer: nn.Module, x: Tensor, number: int, contexts: Sequence[Context]
    ) -> Tensor:
        saved = [copied(context) for context in contexts]
        # The first call fills the contexts that later layers read, and lets go of them: what was
        # made in this layer is held by its graph, and must not be what that graph holds.
        originals = [contexts]

        def call(x: Tensor) -> Tensor:
            copies = originals.pop() if originals else [copied(context) for context in saved]
            return run(layer, x, number, copies)

        y: Tensor = checkpoint(call, x, use_reentrant=False)
        return y

    return run_recomputed
