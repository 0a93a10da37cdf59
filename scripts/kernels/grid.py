"""Kernels against the formulas that they stand in for: outputs and gradients, by shape."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.by_row import query_products, row_sums
from nmt.encodings.weights import masked
from nmt.kernels.relative import STEPS, attention
from nmt.training.crossentropy import loss_by_kernel

LENGTHS, TAUS, WIDTHS = (1, 7, 16, 33, 64, 130), (2, 16), (16, 32, 64)
BATCH, HEADS, DIM = 3, 2, 64
TABLES = ("both", "keys", "values")
LEAST = 1.0  # what is less counts as this: one key alone has a gradient of nothing but rounding
ROUNDS, GROUP = 7, 8  # of Philox, and keys that share one of its draws
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 3e-2}  # of differences, over the largest number


class Shape(NamedTuple):
    """One case of relative attention."""

    queries: int
    keys: int
    tau: int
    width: int  # of a head
    tables: str  # of TABLES
    per_head: bool = False
    causal: bool = False
    padding: bool = False  # a row of the batch is half padding, another one all of it
    low: bool = False  # bfloat16
    rate: float = 0.0  # of dropout

    @property
    def number_format(self) -> torch.dtype:
        """Of queries, keys and values; tables are float32."""
        return torch.bfloat16 if self.low else torch.float32


class Given(NamedTuple):
    """What attention is given."""

    q: Tensor  # [BATCH, HEADS, query, width]
    k: Tensor  # [BATCH, HEADS, key, width]
    v: Tensor
    keys: Tensor | None  # [HEADS | 1, 2 tau + 1, width]
    values: Tensor | None
    allowed: Tensor | None  # [BATCH, 1, 1, key]


class Tokens(NamedTuple):
    """One case of the loss."""

    tokens: int
    vocab: int
    smoothing: float
    low: bool


Differences = dict[str, float]
"""Of what: the largest difference over the largest number."""


def shapes() -> list[Shape]:
    """All of the grid, and what lies beside it: other lengths of keys, dropout, bfloat16."""
    yes = (False, True)
    grid = [
        Shape(n, n, tau, width, kind, per_head, causal, padding)
        for n, tau, width, kind, per_head, causal, padding in product(
            LENGTHS, TAUS, WIDTHS, TABLES, yes, yes, yes
        )
    ]
    across = [
        Shape(n, m, 16, 32, kind, padding=True, rate=rate)
        for n, m in ((33, 130), (130, 7), (1, 64))
        for kind in TABLES
        for rate in (0.0, 0.3)
    ]
    low = [
        Shape(n, n, tau, width, kind, causal=causal, padding=True, low=True, rate=rate)
        for n, tau, width, kind, causal, rate in product(
            (7, 64, 130), TAUS, (32, 64), TABLES, yes, (0.0, 0.1)
        )
    ]
    dropped = [shape._replace(rate=0.3) for shape in grid if shape.width == 16]
    return [*grid, *across, *low, *dropped]


def some(count: int, low: bool = False) -> list[Shape]:
    """Shapes of the grid, drawn the same always; with `low` all are made bfloat16."""
    every = shapes()
    if low:
        every = list(dict.fromkeys(shape._replace(low=True) for shape in every))
    return random.Random(0).sample(every, min(count, len(every)))


def losses() -> Iterator[Tokens]:
    """Cases of the loss: fewer and more tokens than are taken at once, one block and several."""
    for count, vocab, smoothing, low in product(
        (1, 70, 300), (11, 1000, 5000), (0.0, 0.1), (False, True)
    ):
        yield Tokens(count, vocab, smoothing, low)


def difference(mine: Tensor, plain: Tensor) -> float:
    """The largest, over the largest number of the plain one, or over LEAST."""
    if not bool(torch.isfinite(mine).all()):
        return float("inf")
    largest = float(plain.double().abs().max())
    return float((mine.double() - plain.double()).abs().max()) / max(largest, LEAST)


def compare(shape: Shape, device: torch.device) -> Differences:
    """The kernel's outputs and gradients beside those of `by_row`, both made in float32.

    What queries see that may see nothing is not compared, but that the kernel gives zeros.
    """
    made, weight = inputs(shape, device)
    both = {"keys": made.keys, "values": made.values}
    tables = {name: table for name, table in both.items() if table is not None}
    found = []
    for ours in (True, False):
        q, k, v = (x.clone().requires_grad_() for x in made[:3])
        given = made._replace(
            q=q,
            k=k,
            v=v,
            **{name: table.clone().requires_grad_() for name, table in tables.items()},
        )
        torch.manual_seed(2)
        if ours:
            o = attention(
                q, k, v, shape.tau, given.keys, given.values,
                scale=shape.width**-0.5, allowed=given.allowed, causal=shape.causal,
                rate=shape.rate,
            )  # fmt: skip
        else:
            o = plain(given._replace(q=q.float(), k=k.float(), v=v.float()), shape)
            o = torch.cat((o[:2], o[2:] * 0)) if shape.padding else o
        leaves = [q, k, v, *(getattr(given, name) for name in tables)]
        found.append([o.detach(), *torch.autograd.grad((o.float() * weight).sum(), leaves)])
    of = ["output", "queries", "keys", "values", *(f"table of {name}" for name in tables)]
    return {name: difference(*both) for name, *both in zip(of, *found, strict=True)}


def inputs(shape: Shape, device: torch.device) -> tuple[Given, Tensor]:
    """Made-up inputs, and what the outputs are weighted with [BATCH, HEADS, query, width]."""
    draw = torch.Generator().manual_seed(1)
    made = partial(torch.randn, generator=draw)
    q, k, v = (
        made(BATCH, HEADS, n, shape.width).to(device, shape.number_format)
        for n in (shape.queries, shape.keys, shape.keys)
    )
    rows = (HEADS if shape.per_head else 1, 2 * shape.tau + 1, shape.width)
    keys, values = (
        made(*rows).to(device) if shape.tables in (name, "both") else None
        for name in ("keys", "values")
    )
    weight = made(BATCH, HEADS, shape.queries, shape.width).to(device)
    if not shape.padding:
        return Given(q, k, v, keys, values, None), weight
    allowed = torch.ones(BATCH, 1, 1, shape.keys, dtype=torch.bool, device=device)
    allowed[1, :, :, (shape.keys + 1) // 2 :] = False
    allowed[2] = weight[2] = 0
    return Given(q, k, v, keys, values, allowed), weight


def plain(given: Given, shape: Shape, rate: float | None = None) -> Tensor:
    """As `nmt.model.attention` and `nmt.encodings.relative` compute it where no kernel serves.

    With the dropout of the shape, whose random numbers are those of the kernel; or with torch's
    own, of probability `rate`.
    """
    q, k, v, keys, values, allowed = given
    n, m, tau = q.shape[2], k.shape[2], shape.tau
    distance = torch.arange(m, device=q.device) - torch.arange(n, device=q.device)[:, None]
    index = (distance.clamp(-tau, tau) + tau)[None]
    s = q @ k.mT
    s = s if keys is None else s + query_products(q, keys, index)
    if shape.causal:
        past = (distance <= 0)[None, None]
        allowed = past if allowed is None else past & allowed
    p = masked(s.float() * q.shape[-1] ** -0.5, allowed).softmax(-1)
    if rate is not None:
        p = F.dropout(p, rate)
    elif dropped := round(shape.rate * STEPS):
        seed = torch.randint(2**62, (1,), device=q.device)
        kept = draws(int(seed), len(q) * q.shape[1], n, m) >= dropped
        p = p * kept.view(p.shape).to(p.device, p.dtype) * (STEPS / (STEPS - dropped))
    p = p.to(v.dtype)
    return p @ v if values is None else p @ v + row_sums(p, values, index)


def draws(seed: int, heads: int, queries: int, keys: int) -> Tensor:
    """Random integers of 16 bits, [heads, query, key]: Philox4x32 (Salmon et al. 2011) by numpy.

    The counter is (query, key / 8, head, 0), the key is the seed; each of its four results makes
    two numbers, the lower half first.
    """
    groups = -(-keys // GROUP)
    head, query, group = np.ogrid[:heads, :queries, :groups]
    blank = np.zeros((heads, queries, groups), np.uint64)
    c = [blank + part.astype(np.uint64) for part in (query, group, head)] + [blank]
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64((seed >> 32) & 0xFFFFFFFF)]
    for _ in range(ROUNDS):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> high) ^ c[1] ^ key[0], b & low, (a >> high) ^ c[3] ^ key[1], a & low]
        key = [(x + np.uint64(y)) & low for x, y in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
    halves = [half for x in c for half in (x & np.uint64(0xFFFF), x >> np.uint64(16))]
    whole = np.stack(halves, -1).reshape(heads, queries, groups * GROUP)
    return torch.from_numpy(whole[..., :keys].astype(np.int64))


def compare_loss(case: Tokens, device: torch.device) -> Differences:
    """Loss, likelihoods and gradients by the kernel, beside those of F.cross_entropy in float32.

    In bfloat16 the logits of both are products in bfloat16.
    """
    draw = torch.Generator().manual_seed(1)
    made = partial(torch.randn, generator=draw)
    start = [made(case.tokens, DIM), made(case.vocab, DIM) / DIM**0.5, made(case.vocab)]
    target = torch.randint(case.vocab, (case.tokens,), generator=draw).to(device)
    low = torch.bfloat16 if case.low else torch.float32
    hidden, weight, bias = (x.to(device).requires_grad_() for x in start)
    with torch.no_grad():
        mine, nll_mine, by_kernel = loss_by_kernel(
            hidden, weight, bias, target, case.smoothing, low
        )
    logits = (hidden.to(low) @ weight.to(low).T).float() + bias
    loss = F.cross_entropy(logits, target, reduction="sum", label_smoothing=case.smoothing)
    nll = F.cross_entropy(logits, target, reduction="none")
    gradients = torch.autograd.grad(loss, [hidden, weight, bias], retain_graph=True)
    plain = (loss.detach(), nll.detach(), *gradients)
    names = ("loss", "likelihoods", "states", "weights", "bias")
    return {
        name: difference(*both)
        for name, *both in zip(names, (mine, nll_mine, *by_kernel), plain, strict=True)
    }
