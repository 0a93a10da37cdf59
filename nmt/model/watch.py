"""Attention probabilities of a model while it runs: every attention sublayer hands them out."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from nmt.model.attention import Attention, AttentionRecord, Watcher
from nmt.model.stack import HaltingState
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
    running: dict[str, Tensor] = {}  # site -> [batch, query] of the current pass

    def call_watcher(record: AttentionRecord) -> None:
        watcher(record._replace(running=running.get(record.site)))

    with ExitStack() as cleanup:
        for stack, sites in ((model.encoder, ["encoder"]), (model.decoder, ["decoder", "cross"])):
            cleanup.callback(setattr, stack, "recompute", stack.recompute)
            stack.recompute = False
            if stack.halting is not None:
                hook = partial(_record_running, running, sites)
                cleanup.callback(stack.halting.register_forward_pre_hook(hook).remove)
        for attention in modules:
            attention.watcher = call_watcher
            cleanup.callback(setattr, attention, "watcher", None)
        yield


def _record_running(
    running: dict[str, Tensor], sites: list[str], halting: nn.Module, inputs: tuple[Any, ...]
) -> None:
    """Record which tokens still run when a step begins: `Halting.forward`'s inputs hold a state."""
    state = next(t for t in inputs if isinstance(t, HaltingState))
    running.update(dict.fromkeys(sites, state.running))
