"""Attention probabilities of a model while it runs: every attention sublayer hands them out."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from nmt.model.attention import Attention, AttentionRecord, Watcher
from nmt.model.stack import HaltingTally
from nmt.model.transformer import Transformer


@contextmanager
def watching(model: Transformer, watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with an `AttentionRecord` after each softmax of the passes made inside.

    Each layer comes once per pass, or once per step while decoding, in the order of computing;
    attention then takes the plain path, never the fused kernel, which keeps its probabilities to
    itself. Probabilities of a row that may see nothing are equal for all keys, and rows of
    padding look around like others: `allowed` and the ids say which of them mean something.
    Models with complex embeddings have `model.streams` rows for each sentence, side by side.
    Keep sums rather than the tensors. Nothing is computed a second time in the backward pass: it
    would be seen twice. Raises RuntimeError where the model is being watched already.
    """
    watched = [module for module in model.modules() if isinstance(module, Attention)]
    if any(attention.watcher is not None for attention in watched):
        raise RuntimeError("this model is being watched already")
    running: dict[str, Tensor] = {}  # site -> [batch, query] of the current pass

    def hand_on(record: AttentionRecord) -> None:
        watcher(record._replace(running=running.get(record.site)))

    with ExitStack() as after:
        for stack, sites in ((model.encoder, ["encoder"]), (model.decoder, ["decoder", "cross"])):
            after.callback(setattr, stack, "recompute", stack.recompute)
            stack.recompute = False
            if stack.halting is not None:
                note = partial(_note_running, running, sites)
                after.callback(stack.halting.register_forward_pre_hook(note).remove)
        for attention in watched:
            attention.watcher = hand_on
            after.callback(setattr, attention, "watcher", None)
        yield


def _note_running(
    running: dict[str, Tensor], sites: list[str], halting: nn.Module, inputs: tuple[Any, ...]
) -> None:
    """Note which tokens still run when a step begins: `Halting.forward`'s inputs hold a tally."""
    tally = next(t for t in inputs if isinstance(t, HaltingTally))
    running.update(dict.fromkeys(sites, tally.running))
