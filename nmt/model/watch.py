"""Attention probabilities of a model while it runs: every attention sublayer hands them out."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nmt.model.attention import Attention, Watcher
from nmt.model.transformer import Transformer


@contextmanager
def watching(model: Transformer, watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with an `AttentionRecord` after each softmax within the block.

    Each layer comes once per pass, or once per step while decoding, in the order of computing;
    attention then uses the plain formulas, as the fused kernel does not return probabilities.
    Probabilities of a row without allowed keys are equal for all keys, and rows of padding attend
    like others: `allowed` and the ids tell which rows are valid.
    Models with complex embeddings have `model.streams` rows for each sentence, side by side.
    Keep sums rather than the tensors. Nothing is computed a second time in the backward pass: it
    would be seen twice. Raises RuntimeError where the model is being watched already.
    """
    modules = [module for module in model.modules() if isinstance(module, Attention)]
    if any(attention.watcher is not None for attention in modules):
        raise RuntimeError("this model is being watched already")
    with ExitStack() as cleanup:
        for stack in (model.encoder, model.decoder):
            cleanup.callback(setattr, stack, "recompute", stack.recompute)
            stack.recompute = False
        for attention in modules:
            attention.watcher = watcher
            cleanup.callback(setattr, attention, "watcher", None)
        yield
