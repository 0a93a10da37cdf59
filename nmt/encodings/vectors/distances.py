"""Products with one vector per distance, for relative encodings.

A vector per pair of tokens would need [query, key, head_dim] numbers; instead each query (or key)
is multiplied with each occurring distance once, and the pairs read from these products.
"""

import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.sinusoids import angles
from nmt.encodings.vectors.by_row import gather, query_products


def distinct(context: Context, tau: int | None = None) -> tuple[Tensor, Tensor]:
    """The distances that occur [distance], key minus query, and their numbers [.., query, key].

    Distances beyond tau count as tau; None: they all count as what they are.
    """

    def find() -> tuple[Tensor, Tensor]:
        delta = context.delta if tau is None else context.delta.clamp(-tau, tau)
        if (end := context.consecutive_end) is None:
            distances, index = torch.unique(delta, return_inverse=True)
            return distances, index
        _, queries, keys = delta.shape  # all distances between the outermost two occur
        least, greatest = 1 - end, keys - 1 - (end - queries)
        if tau is not None:
            least, greatest = (max(-tau, min(tau, d)) for d in (least, greatest))
        return torch.arange(least, greatest + 1, device=delta.device), delta - least

    return context.once(("distinct", tau), find)


def key_products(k: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """k_j . rows[index_ij] for k [batch, heads, key, head_dim]: [batch, heads, query, key].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key]. A single query, as in
    decoding, needs one row for each key, so that cached keys do not meet all rows at every step.
    """
    rows = rows.to(k.dtype)
    if index.shape[1] == 1:
        picked = rows[:, index[:, 0]].transpose(0, 1)  # [batch | 1, heads | 1, key, head_dim]
        return (picked[..., None, :] @ k[..., None])[..., 0].mT
    return gather(k @ rows.mT, index.mT).mT


def sinusoid_products(
    t: Tensor, weight: Tensor | None, w: Tensor, context: Context, keys: bool = False
) -> Tensor:
    """t_i . (W PE(i - j)) with PE(x) = [sin(w x) | cos(w x)]: [batch, heads, query, key].

    t: [batch, heads, query, head_dim]; weight W: [heads, head_dim, 2 f], None for the identity;
    w: frequencies [f] in float64. keys: t belongs to keys, and the product is t_j . (W PE(j - i)).

    Where all sentences have the same whole positions, or there are only distances, PE is built
    once for each distance. Otherwise nearly every pair has a distance of its own, and the
    addition theorem takes them apart: with y = W^T t = [y_s | y_c],
    y . PE(i - j) = (y_s sin wi + y_c cos wi) . cos wj + (y_c sin wi - y_s cos wi) . sin wj.
    """
    i, j = context.query_positions, context.key_positions
    shared = len(i) == len(j) == 1
    if context.positions.distances_only or (shared and not i.is_floating_point()):
        distances, index = distinct(context)
        a = angles(distances if keys else -distances, w)  # [distance, f]
        rows = torch.cat([a.sin(), a.cos()], dim=-1).to(t.dtype)
        rows = rows[None] if weight is None else rows @ weight.mT.to(t.dtype)
        return key_products(t, rows, index) if keys else query_products(t, rows, index)
    y = t if weight is None else t @ weight.to(t.dtype)
    at_query, at_key = angles(i, w)[:, None], angles(j, w)[:, None]
    if keys:
        at_query, at_key = at_key, at_query
    sin, cos = at_query.sin().to(t.dtype), at_query.cos().to(t.dtype)  # [batch | 1, 1, n, f]
    y_sin, y_cos = y.chunk(2, dim=-1)
    rotated = torch.cat([y_sin * sin + y_cos * cos, y_cos * sin - y_sin * cos], dim=-1)
    products = rotated @ torch.cat([at_key.cos(), at_key.sin()], dim=-1).mT.to(t.dtype)
    return products.mT if keys else products
