"""Trees as tensors: depths, paths and distances of words, from the heads of a sentence.

All functions take two columns parallel to the source, [batch, n] integers with one entry per piece:

heads: the index, from 1, of the first piece of the head word; 0 for a root. The pieces of a word
    share their head. A sentence may have several roots; EOS and padding are roots too.
words: the number of the word that a piece belongs to; neighbours with one number are one word.

Loops run over the depth of the deepest tree, never over tokens. Each function raises ValueError
for heads outside of 0..n, and, where it follows all paths, for heads that go round in a circle.
"""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor


def depths(heads: Tensor) -> Tensor:
    """Steps from each piece's word up to its root: [batch, n], 0 at a root."""
    depth = torch.zeros_like(heads)
    for above in ancestors(heads):
        depth += above < heads.shape[1]
    return depth


def steps_up(heads: Tensor, words: Tensor) -> Tensor:
    """Steps from i up to j: [batch, i, j], 0 within a word, -1 where j is not above i.

    So `>= 0` is the matrix of ancestors.
    """
    batch, n = heads.shape
    first = first_pieces(words)
    steps = heads.new_full((batch, n, n + 1), -1)  # the last column is above all roots
    steps.scatter_(2, first[:, :, None], 0)
    for count, above in enumerate(ancestors(heads), start=1):
        steps.scatter_(2, above[:, :, None], count)
    return steps.gather(2, first[:, None, :].expand(-1, n, -1))


def tree_distances(heads: Tensor, words: Tensor) -> Tensor:
    """Signed distances of Wang et al. (2019) between all words: [batch, query, key].

    With s the query, t the key and abs() the depth, rel = abs(t) - abs(s) if one stands on the
    other's path to the root, else sgn(t - s) (abs(t) + abs(s)); the order is the sentence's. Key
    minus query: in a chain, where each word hangs on the one before it, rel = t - s. Pieces of one
    word are 0 apart.
    """
    up, depth = steps_up(heads, words), depths(heads)
    first = first_pieces(words)
    order = (first[:, None, :] - first[:, :, None]).sign()
    around = order * (depth[:, None, :] + depth[:, :, None])
    return torch.where(up >= 0, -up, torch.where(up.mT >= 0, up.mT, around))


def graph_distances(heads: Tensor, words: Tensor, longest: int) -> Tensor:
    """Lengths of directed paths between all words: [batch, query, key].

    Edges lead from heads to what hangs on them. A path that leads from the query to the key (down)
    counts positive, one that leads back (up) negative, at most `longest` either way. Where no path
    leads in either direction, as between sisters, the number is longest + 1.
    """
    up = steps_up(heads, words)
    none = torch.full_like(up, longest + 1)
    down = torch.where(up.mT >= 0, up.mT.clamp(max=longest), none)
    return torch.where(up >= 0, -up.clamp(max=longest), down)


def path_codes(heads: Tensor, branch: Tensor, depth: int) -> Tensor:
    """Which branch to take at each step down from the root, the last one first.

    `branch` [batch, n]: the number of the branch that leads to each piece's word; what it says of
    roots is not read. Result [batch, n, depth]; -1 stands beyond the root. Of paths longer than
    `depth`, the steps next to the root are left out.
    """
    branch = torch.where(heads > 0, branch, -1)
    nothing = branch.new_full((len(branch), 1), -1)  # of what is above the roots
    branches = torch.cat([branch, nothing], dim=1)
    path = [branch, *(branches.gather(1, above) for above in islice(ancestors(heads), depth - 1))]
    path += [torch.full_like(branch, -1)] * (depth - len(path))
    return torch.stack(path, dim=2)


def binarise(heads: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Turn any trees into binary ones, left child and right sister: heads and branches [batch, n].

    A first child hangs on its head (branch 0), any other on the sister before it (branch 1).
    """
    at = torch.arange(1, heads.shape[1] + 1, device=heads.device)
    sister = torch.where(_earlier_sisters(heads, words), at, 0).amax(2)  # the nearest; 0: none
    later = (heads > 0) & (sister > 0)
    return torch.where(later, sister, heads), later.long()


def birth_order(heads: Tensor, words: Tensor) -> Tensor:
    """The number of earlier words in the sentence with the same head: [batch, n]."""
    return _earlier_sisters(heads, words).sum(2)


def first_pieces(words: Tensor) -> Tensor:
    """Where, from 0, the word of each piece begins: [batch, n]."""
    at = torch.arange(words.shape[1], device=words.device).expand_as(words)
    begins = torch.ones_like(words, dtype=torch.bool)
    begins[:, 1:] = words[:, 1:] != words[:, :-1]
    return torch.where(begins, at, 0).cummax(1).values


def ancestors(heads: Tensor) -> Iterator[Tensor]:
    """Parents, then grandparents, and so on: [batch, n] indices from 0 each, n above a root."""
    batch, n = heads.shape
    if (wrong := heads[(heads < 0) | (heads > n)]).numel():
        raise ValueError(f"a head is {int(wrong[0])} of {n} pieces; heads count them from 1")
    parents = torch.where(heads > 0, heads - 1, n)
    parents = torch.cat([parents, parents.new_full((batch, 1), n)], dim=1)
    above = parents[:, :n]
    for _ in range(n):
        if bool((above == n).all()):
            return
        yield above
        above = parents.gather(1, above)
    if n and not bool((above == n).all()):
        raise ValueError("the heads of a sentence go round in a circle; they must be trees")


def _earlier_sisters(heads: Tensor, words: Tensor) -> Tensor:
    """Whether j begins a word before that of i, with the same head: [batch, i, j]."""
    first = first_pieces(words)
    at = torch.arange(heads.shape[1], device=heads.device)
    sisters = (heads[:, :, None] == heads[:, None, :]) & (first == at)[:, None, :]
    return sisters & (at < first[:, :, None])
