"""What an encoding costs on this machine: a stack of attention sublayers, with and without it."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.config import Model
from nmt.encodings.composition import Encodings
from nmt.inspect.single import pass_over
from nmt.model import example
from nmt.model.attention import Attention, Memory
from nmt.model.transformer import Transformer

ROWS, LENGTH = 4, 64
VOCAB = 8
LAYERS = 2
PAIRS = (3, 25)  # fewest and most measurements
SECONDS = 4.0  # after the fewest, stop when so much time is gone

Forward = Callable[[], Tensor]


class Cost(NamedTuple):
    """Medians over interleaved pairs of measurements; quartiles tell how steady they are."""

    where: str  # what was measured
    plain: float  # seconds, forward and backward
    ratios: list[float]  # of the times with and without the encoding: the three quartiles
    pairs: int
    plain_bytes: int  # kept for the backward pass
    bytes: int


def cost_of(model: Transformer, config: Model) -> Cost:
    """Measure the encoder's site, or the first other one that the encoding serves.

    The stack consists of two self-attention sublayers and nothing else, all hooks included; so
    the share of the whole model is smaller, above all of what acts once per stack.
    """
    used = [s for s in ("encoder", "decoder") if model.sites[s].entries]
    site = used[0] if used else "encoder"
    layers = min(LAYERS, config.encoder_layers, config.decoder_layers)
    stack = [Attention(config.dim, config.heads, 0.0) for _ in range(layers)]
    ids = example.ids(ROWS, LENGTH, VOCAB)
    columns = example.columns(model.sites[site].columns, ids)
    inputs = torch.randn(ROWS, LENGTH, config.dim, requires_grad=True)

    def forward(encodings: Encodings) -> Tensor:
        context: Any = pass_over(ids, site, columns)
        x = encodings.embed(inputs, context)
        inside = context if encodings.streams == 1 else context.repeated(encodings.streams)
        for number, attention in enumerate(stack):
            x = encodings.layer(x, number, inside)
            x = x + attention(x, Memory(x), number, encodings, inside)
        return encodings.readout(x, inside).square().mean()

    none = Encodings([])
    runs: tuple[Forward, Forward] = (lambda: forward(none), lambda: forward(model.sites[site]))
    learned = [p for m in (*stack, model) for p in m.parameters()]
    held = {t.untyped_storage().data_ptr() for t in (*learned, inputs)}
    plain_bytes, extra_bytes = (_kept(run, held) for run in runs)
    times = _interleaved(*runs)
    ratios = statistics.quantiles([b / a for a, b in times], n=4)
    where = f"{layers} self-attention sublayers, {ROWS} x {LENGTH} tokens"
    plain = statistics.median(a for a, _ in times)
    return Cost(where, plain, ratios, len(times), plain_bytes, extra_bytes)


def _interleaved(first: Forward, second: Forward) -> list[tuple[float, float]]:
    """Pairs of seconds, one after the other, so that a busy machine slows both; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the machine may have other work
    try:
        _seconds(first), _seconds(second)  # a first pass is slower
        pairs: list[tuple[float, float]] = []
        begun = time.perf_counter()
        while len(pairs) < PAIRS[0] or (
            len(pairs) < PAIRS[1] and time.perf_counter() - begun < SECONDS
        ):
            pairs.append((_seconds(first), _seconds(second)))
        return pairs
    finally:
        torch.set_num_threads(threads)


def _seconds(run: Forward) -> float:
    begun = time.perf_counter()
    run().backward()
    return time.perf_counter() - begun


def _kept(run: Forward, held: set[int]) -> int:
    """Bytes of all tensors that a forward pass keeps for its backward pass, each storage once.

    Those in `held` were there before.
    """
    sizes: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in held:
            sizes[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = run()  # alive until counted, or storages would be used again
    del kept
    return sum(sizes.values())
