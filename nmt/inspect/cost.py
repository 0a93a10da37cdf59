"""What an encoding costs on this machine: a stack of attention sublayers, with and without it."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.composition import Encodings
from nmt.inspect.specimen import Watched, pass_over
from nmt.model import example
from nmt.model.attention import Attention, Memory
from nmt.model.transformer import Transformer

ROWS, LENGTH = 4, 64
VOCAB = 8
LAYERS = 2
PAIRS = (3, 25)  # fewest and most measurements
SECONDS = 4.0  # after the fewest, stop when so much time is gone


class Cost(NamedTuple):
    """Medians over interleaved pairs of measurements; quartiles tell how steady they are."""

    where: str  # what was measured
    plain: float  # seconds, forward and backward
    ratio: float
    low: float  # first quartile of the ratio
    high: float  # third quartile
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
    encodings = model.sites[site]
    layers = min(LAYERS, config.encoder_layers, config.decoder_layers)
    stack = [Attention(config.dim, config.heads, 0.0) for _ in range(layers)]
    ids = example.ids(ROWS, LENGTH, VOCAB)
    columns = example.columns(encodings.columns, ids)
    x = torch.randn(ROWS, LENGTH, config.dim, requires_grad=True)

    def once(chosen: Encodings) -> Callable[[], Tensor]:
        return lambda: _forward(x, stack, chosen, pass_over(ids, site, columns))

    plain, extra = once(Encodings([])), once(encodings)
    parameters = {p.untyped_storage().data_ptr() for m in (*stack, model) for p in m.parameters()}
    sizes = [_kept(run, parameters | {x.untyped_storage().data_ptr()}) for run in (plain, extra)]
    with _one_thread():
        times = _interleaved(plain, extra)
    ratios = [b / a for a, b in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    where = f"{layers} self-attention sublayers, {ROWS} x {LENGTH} tokens"
    first = statistics.median(a for a, _ in times)
    return Cost(where, first, middle, low, high, len(times), sizes[0], sizes[1])


@contextmanager
def _one_thread() -> Iterator[None]:
    """The machine may have other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _forward(x: Tensor, stack: list[Attention], encodings: Encodings, context: Watched) -> Tensor:
    x = encodings.embed(x, context)
    inside: Any = context if encodings.streams == 1 else context.repeated(encodings.streams)
    for number, attention in enumerate(stack):
        x = encodings.layer(x, number, inside)
        x = x + attention(x, Memory(x), number, encodings, inside)
    return encodings.readout(x, inside).square().mean()


def _interleaved(
    first: Callable[[], Tensor], second: Callable[[], Tensor]
) -> list[tuple[float, float]]:
    """Pairs of seconds, one after the other, so that a busy machine slows both."""
    for run in (first, second):
        run().backward()
    pairs: list[tuple[float, float]] = []
    begun = time.perf_counter()
    while len(pairs) < PAIRS[0] or (
        len(pairs) < PAIRS[1] and time.perf_counter() - begun < SECONDS
    ):
        pairs.append((_seconds(first), _seconds(second)))
    return pairs


def _seconds(run: Callable[[], Tensor]) -> float:
    begun = time.perf_counter()
    run().backward()
    return time.perf_counter() - begun


def _kept(run: Callable[[], Tensor], known: set[int]) -> int:
    """Bytes of all tensors that a forward pass keeps for its backward pass, each storage once."""
    sizes: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = run()  # alive until counted, or storages would be used again
    del kept
    return sum(sizes.values())


def parameters(module: nn.Module) -> int:
    """How many numbers are learnt."""
    return sum(p.numel() for p in module.parameters())
