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
    random state from before the layer, and the contexts are copies from before it. So values that a
    layer is the first to compute or to draw (`Context.once`) are computed again, in the same order,
    and no encoding has to care.
    """

    def run_recomputed(
        layer: nn.Module, x: Tensor, number: int, contexts: Sequence[Context]
    ) -> Tensor:
        saved = [copied(context) for context in contexts]
        # The first call fills the contexts that later layers read, and then drops them: they hold
        # tensors of this layer's graph, and the graph must not hold them in turn.
        originals = [contexts]

        def call(x: Tensor) -> Tensor:
            copies = originals.pop() if originals else [copied(context) for context in saved]
            return run(layer, x, number, copies)

        y: Tensor = checkpoint(call, x, use_reentrant=False)
        return y

    return run_recomputed
