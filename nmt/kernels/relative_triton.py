"""Triton kernels of attention with one vector per clipped distance: see `nmt.kernels.relative`.

Imported only where triton is. Everything is [batch, n, heads, width] in memory, as linear layers
give it; so the rows of one head of one sentence lie `heads` rows apart. A program makes one block
of QUERIES (`forward`, `by_query`) or of KEYS (`by_key`) of these, and goes over the blocks of the
other side in three parts: those where every key lies tau or more
before its query and reads the first row of the tables, those near the diagonal, and those where
every key lies tau or more behind. So only near the diagonal is a row looked up for each pair.

Within that band, at most one key of a query stands at each distance but the two outermost. So sums
over the keys of a distance need no adding: a pair's own entry is stored at its distance, and only
the two outermost columns are sums, which the program keeps itself. No atomics: two calls give the
same bits.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
ROUNDS = tl.constexpr(7)  # of Philox4x32: the fewest that pass BigCrush (Salmon et al. 2011)
PLAIN = ["heads", "n", "m", "mask_batch", "mask_query", "dropped"]  # one compilation serves all


@triton.jit
def _first_rows(head, heads, n, m):
    """Where a head of a sentence begins among rows [batch, n, heads] and [batch, m, heads].

    And its number among those of all sentences, by which `lse` and `delta` [batch, heads, n] go.
    `head` is that number in 32 bits; the others have 64.
    """
    at = head.to(tl.int64)
    return at // heads * n * heads + at % heads, at // heads * m * heads + at % heads, at


@triton.jit
def _column(t, i, j, n, heads, SIDE: tl.constexpr, TAU: tl.constexpr, WIDTH: tl.constexpr):
    """What queries i have for the distances of keys j: [query, key]; [query, 1] for one side."""
    if SIDE == 0:
        row = tl.minimum(tl.maximum(j[None, :] - i[:, None], -TAU), TAU) + TAU
        scores = tl.load(t + (i * heads)[:, None] * WIDTH + row, mask=(i < n)[:, None], other=0.0)
    else:
        scores = tl.load(t + i * heads * WIDTH + (TAU + SIDE * TAU), mask=i < n, other=0.0)[:, None]
    return scores.to(tl.float32)


@triton.jit
def _scores(
    q, k, t, allowed, i, j, n, m, heads, scale, mask_query,
    SIDE: tl.constexpr, KEYS: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
    TAU: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores [query, key] of q [query, D] and k [key, D] times log2 e; -inf where one may not look.

    Also for queries from n on and keys from m on, of which there are none.
    """
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if KEYS:
        s += _column(t, i, j, n, heads, SIDE, TAU, WIDTH)
    seen = (i < n)[:, None] & (j < m)[None, :]
    if MASK == 1:
        seen &= (tl.load(allowed + j, mask=j < m, other=0) != 0)[None, :]
    if MASK == 2:
        pairs = allowed + i[:, None] * mask_query + j[None, :]
        seen &= tl.load(pairs, mask=seen, other=0) != 0
    if CAUSAL:
        seen &= j[None, :] <= i[:, None]
    return tl.where(seen, s * (scale * LOG2E), -float("inf"))


@triton.jit
def _kept(seed, head, i, start, dropped, COUNT: tl.constexpr):
    """Whether dropout keeps the pairs of queries i and keys start .. start + COUNT - 1.

    Each has 16 bits of Philox4x32 with the counter (query, key / 8, head) and the key `seed`, so
    that every kernel finds the same, whatever its blocks; kept are those not below `dropped`.
    """
    group = start // 8 + tl.arange(0, COUNT // 8)
    query = i[:, None] + tl.zeros_like(group)[None, :]
    a, b, c, d = tl.philox(seed, query, group[None, :] + tl.zeros_like(query), head, 0, ROUNDS)
    words = tl.join(tl.join(a, c), tl.join(b, d))  # a join makes a new last axis
    draws = tl.reshape(tl.join(words & 0xFFFF, words >> 16), (i.shape[0], COUNT))
    return draws.to(tl.int32) >= dropped


@triton.jit
def _store_band(to, x, i, j, n, m, heads, TAU: tl.constexpr, WIDTH: tl.constexpr):
    """Put x [query, key] where its distance stands, unless that is one of the two outermost."""
    distance = j[None, :] - i[:, None]
    inner = (distance > -TAU) & (distance < TAU) & (i < n)[:, None] & (j < m)[None, :]
    at = to + (i * heads)[:, None] * WIDTH + distance + TAU
    tl.store(at, x.to(to.dtype.element_ty), mask=inner)


@triton.jit
def _outermost(before, behind, x, i, j, SIDE: tl.constexpr, TAU: tl.constexpr):
    """Sums [query] over the keys tau or more before, and tau or more behind, plus those of x."""
    if SIDE == 0:
        distance = j[None, :] - i[:, None]
        before += tl.sum(tl.where(distance <= -TAU, x, 0.0), 1)
        behind += tl.sum(tl.where(distance >= TAU, x, 0.0), 1)
    elif SIDE < 0:
        before += tl.sum(x, 1)
    else:
        behind += tl.sum(x, 1)
    return before, behind


@triton.jit
def _part(
    SIDE: tl.constexpr, first, end, TAU: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr
):
    """Where a part begins and ends among the blocks of OTHER: before, around, or behind.

    For the block of OWN that begins at `first`; all parts together are 0 .. end.
    """
    near = tl.maximum(first - TAU + 1, 0) // OTHER * OTHER
    far = tl.cdiv(first + OWN - 1 + TAU, OTHER) * OTHER
    if SIDE < 0:
        low, high = near * 0, near
    elif SIDE == 0:
        low, high = near, far
    else:
        low, high = far, far + end
    return low, tl.minimum(high, end)


@triton.jit
def _block(x, i, n, heads, D: tl.constexpr):
    """Rows i of one head of x [n, heads, D]; zeros from row n on."""
    d = tl.arange(0, D)
    return tl.load(x + (i * heads)[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)


@triton.jit
def _store_block(to, x, i, n, heads, D: tl.constexpr):
    d = tl.arange(0, D)
    at = to + (i * heads)[:, None] * D + d[None, :]
    tl.store(at, x.to(to.dtype.element_ty), mask=(i < n)[:, None])


@triton.jit
def _store_outermost(to, before, behind, i, n, heads, TAU: tl.constexpr, WIDTH: tl.constexpr):
    at = to + i * heads * WIDTH
    tl.store(at, before.to(to.dtype.element_ty), mask=i < n)
    tl.store(at + 2 * TAU, behind.to(to.dtype.element_ty), mask=i < n)


@triton.jit(do_not_specialize=PLAIN)
def forward(
    q, k, v, t, allowed, seed, o, lse, sums, scale, grown, dropped,
    heads, n, m, mask_batch, mask_query,
    KEYS: tl.constexpr, VALUES: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr, TAU: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    QUERIES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = p v, the logarithms lse of the sums that p is divided by, and p's sums by distance.

    Online softmax (Milakov, Gimelshein 2018; FlashAttention, Dao et al. 2022). A query that may see
    nothing gets zeros, as torch's fused attention gives it.
    """
    blocks = tl.cdiv(n, QUERIES)
    head, first = tl.program_id(0) // blocks, tl.program_id(0) % blocks * QUERIES
    row, of_key, at = _first_rows(head, heads, n, m)
    k, v, allowed = k + of_key * D, v + of_key * D, allowed + at // heads * mask_batch
    t, sums = t + row * WIDTH, sums + row * WIDTH
    i = first + tl.arange(0, QUERIES)
    x = _block(q + row * D, i, n, heads, D)
    key = tl.load(seed) if DROPOUT else 0
    end = tl.minimum(m, first + QUERIES) if CAUSAL else m
    largest = tl.full((QUERIES,), -float("inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    before = tl.zeros((QUERIES,), tl.float32)
    behind = tl.zeros((QUERIES,), tl.float32)
    y = tl.zeros((QUERIES, D), tl.float32)
    for SIDE in tl.static_range(-1, 2):
        low, high = _part(SIDE, first, end, TAU, QUERIES, OTHERS)
        for start in range(low, high, OTHERS):
            j = start + tl.arange(0, OTHERS)
            s = _scores(
                x, _block(k, j, m, heads, D), t, allowed, i, j, n, m, heads, scale, mask_query,
                SIDE, KEYS, MASK, CAUSAL, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            new = tl.maximum(largest, tl.max(s, 1))
            base = tl.where(new == -float("inf"), 0.0, new)
            shrunk = tl.exp2(largest - base)
            p = tl.exp2(s - base[:, None])
            largest, total = new, total * shrunk + tl.sum(p, 1)
            if DROPOUT:
                p = tl.where(_kept(key, head, i, start, dropped, OTHERS), p * grown, 0.0)
            if VALUES:
                before, behind = _outermost(before * shrunk, behind * shrunk, p, i, j, SIDE, TAU)
            values = _block(v, j, m, heads, D)
            y = y * shrunk[:, None] + tl.dot(p.to(values.dtype), values, input_precision=PRECISION)
    divided = tl.where(total == 0.0, 1.0, total)
    logarithm = tl.where(total == 0.0, 0.0, largest + tl.log2(divided))
    tl.store(lse + at * n + i, logarithm, mask=i < n)
    _store_block(o + row * D, y / divided[:, None], i, n, heads, D)
    if VALUES:
        _store_outermost(sums, before / divided, behind / divided, i, n, heads, TAU, WIDTH)
        low, high = _part(0, first, end, TAU, QUERIES, OTHERS)
        for start in range(low, high, OTHERS):  # once more, now that what p is divided by is known
            j = start + tl.arange(0, OTHERS)
            s = _scores(
                x, _block(k, j, m, heads, D), t, allowed, i, j, n, m, heads, scale, mask_query,
                0, KEYS, MASK, CAUSAL, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            p = tl.exp2(s - logarithm[:, None])
            if DROPOUT:
                p = tl.where(_kept(key, head, i, start, dropped, OTHERS), p * grown, 0.0)
            _store_band(sums, p, i, j, n, m, heads, TAU, WIDTH)


@triton.jit
def _by_scores(
    s, g, values, u, i, j, start, n, heads, lse, delta, key, head, grown, dropped,
    SIDE: tl.constexpr, VALUES: tl.constexpr, DROPOUT: tl.constexpr, TAU: tl.constexpr,
    WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Probabilities as dropout left them and the gradient of the scaled scores: [query, key].

    `u` are the products of the output's gradient g with the table of values, by distance.
    """
    p = tl.exp2(s - lse[:, None])
    by_p = tl.dot(g, tl.trans(values), input_precision=PRECISION)
    if VALUES:
        by_p += _column(u, i, j, n, heads, SIDE, TAU, WIDTH)
    left = p
    if DROPOUT:
        kept = _kept(key, head, i, start, dropped, s.shape[1])
        left, by_p = tl.where(kept, p * grown, 0.0), tl.where(kept, by_p * grown, 0.0)
    return left, p * (by_p - delta[:, None])


@triton.jit(do_not_specialize=PLAIN)
def by_query(
    q, k, v, t, u, allowed, seed, g, o, lse, delta, by_q, sums, scale, grown, dropped,
    heads, n, m, mask_batch, mask_query,
    KEYS: tl.constexpr, VALUES: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr, TAU: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    QUERIES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of q through q k, and sums by distance of the gradient of the products t.

    Also delta, the sums of probability times its gradient, which `by_key` reads: g . o, with o as
    it left attention, vectors by distance included.
    """
    blocks = tl.cdiv(n, QUERIES)
    head, first = tl.program_id(0) // blocks, tl.program_id(0) % blocks * QUERIES
    row, of_key, at = _first_rows(head, heads, n, m)
    k, v, allowed = k + of_key * D, v + of_key * D, allowed + at // heads * mask_batch
    t, u, sums = t + row * WIDTH, u + row * WIDTH, sums + row * WIDTH
    i = first + tl.arange(0, QUERIES)
    x, y = _block(q + row * D, i, n, heads, D), _block(g + row * D, i, n, heads, D)
    out = _block(o + row * D, i, n, heads, D)
    inner = tl.sum(y.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(delta + at * n + i, inner, mask=i < n)
    logarithm = tl.load(lse + at * n + i, mask=i < n, other=0.0)
    key = tl.load(seed) if DROPOUT else 0
    end = tl.minimum(m, first + QUERIES) if CAUSAL else m
    before = tl.zeros((QUERIES,), tl.float32)
    behind = tl.zeros((QUERIES,), tl.float32)
    z = tl.zeros((QUERIES, D), tl.float32)
    for SIDE in tl.static_range(-1, 2):
        low, high = _part(SIDE, first, end, TAU, QUERIES, OTHERS)
        for start in range(low, high, OTHERS):
            j = start + tl.arange(0, OTHERS)
            keys = _block(k, j, m, heads, D)
            s = _scores(
                x, keys, t, allowed, i, j, n, m, heads, scale, mask_query,
                SIDE, KEYS, MASK, CAUSAL, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            _, by_s = _by_scores(
                s, y, _block(v, j, m, heads, D), u, i, j, start, n, heads, logarithm, inner, key,
                head, grown, dropped, SIDE, VALUES, DROPOUT, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            z += tl.dot(by_s.to(keys.dtype), keys, input_precision=PRECISION)
            if KEYS:
                before, behind = _outermost(before, behind, by_s, i, j, SIDE, TAU)
                if SIDE == 0:
                    _store_band(sums, by_s * scale, i, j, n, m, heads, TAU, WIDTH)
    _store_block(by_q + row * D, z * scale, i, n, heads, D)
    if KEYS:
        _store_outermost(sums, before * scale, behind * scale, i, n, heads, TAU, WIDTH)


@triton.jit(do_not_specialize=PLAIN)
def by_key(
    q, k, v, t, u, allowed, seed, g, lse, delta, by_k, by_v, scale, grown, dropped,
    heads, n, m, mask_batch, mask_query,
    KEYS: tl.constexpr, VALUES: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr, TAU: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    QUERIES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of k and v."""
    blocks = tl.cdiv(m, OTHERS)
    head, start = tl.program_id(0) // blocks, tl.program_id(0) % blocks * OTHERS
    row, of_key, at = _first_rows(head, heads, n, m)
    q, g, allowed = q + row * D, g + row * D, allowed + at // heads * mask_batch
    t, u, lse, delta = t + row * WIDTH, u + row * WIDTH, lse + at * n, delta + at * n
    j = start + tl.arange(0, OTHERS)
    keys, values = _block(k + of_key * D, j, m, heads, D), _block(v + of_key * D, j, m, heads, D)
    key = tl.load(seed) if DROPOUT else 0
    z = tl.zeros((OTHERS, D), tl.float32)
    w = tl.zeros((OTHERS, D), tl.float32)
    for SIDE in tl.static_range(-1, 2):
        low, high = _part(SIDE, start, n, TAU, OTHERS, QUERIES)
        if CAUSAL:
            low = tl.maximum(low, start // QUERIES * QUERIES)
        for first in range(low, high, QUERIES):
            i = first + tl.arange(0, QUERIES)
            x, y = _block(q, i, n, heads, D), _block(g, i, n, heads, D)
            s = _scores(
                x, keys, t, allowed, i, j, n, m, heads, scale, mask_query,
                -SIDE, KEYS, MASK, CAUSAL, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            logarithm = tl.load(lse + i, mask=i < n, other=0.0)
            inner = tl.load(delta + i, mask=i < n, other=0.0)
            p, by_s = _by_scores(
                s, y, values, u, i, j, start, n, heads, logarithm, inner, key, head,
                grown, dropped, -SIDE, VALUES, DROPOUT, TAU, WIDTH, PRECISION,
            )  # fmt: skip
            w += tl.dot(tl.trans(p).to(y.dtype), y, input_precision=PRECISION)
            z += tl.dot(tl.trans(by_s).to(x.dtype), x, input_precision=PRECISION)
    _store_block(by_k + of_key * D, z * scale, j, m, heads, D)
    _store_block(by_v + of_key * D, w, j, m, heads, D)
