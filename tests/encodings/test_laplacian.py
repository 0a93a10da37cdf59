"""Eigenvectors of trees against those of NumPy for each tree; signs drawn or fixed."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.site import SiteEncodings
from nmt.encodings.trees.laplacian import Laplacian, eigenvectors
from tests.encodings.attending import dims, pass_over
from tests.encodings.test_trees import Heads, batch, some

Matrix = list[list[float]]
STAR: Heads = [2, 0, 2, 2, 2, 2]  # five words that are alike, on one
SENTENCES = [*some(seed=4, rows=6), (STAR, [1, 2, 1, 1, 3, 1])]
HEADS, WORDS = batch(SENTENCES)
LENGTHS = torch.tensor([sum(sizes) + 1 for _, sizes in SENTENCES])  # eos included


def laplacian(heads: Heads) -> Matrix:
    """I - D^-1/2 A D^-1/2 of words, eos and one node above the roots, which is the last."""
    above = len(heads) + 1
    edges = [(word, head - 1 if head else above) for word, head in enumerate([*heads, 0])]
    degree = [sum(node in edge for edge in edges) for node in range(above + 1)]
    matrix = [[float(i == j) for j in range(above + 1)] for i in range(above + 1)]
    for i, j in edges:
        matrix[i][j] = matrix[j][i] = -1 / math.sqrt(degree[i] * degree[j])
    return matrix


def eigenpairs(matrix: Matrix) -> list[tuple[float, list[float]]]:
    """Eigenvalues and their vectors, in order."""
    values, vectors = np.linalg.eigh(np.array(matrix))
    return list(zip(values.tolist(), vectors.T.tolist(), strict=True))


def components(heads: Heads, count: int) -> list[list[float]]:
    """Those of each word and eos in the eigenvectors after the first."""
    nodes = len(heads) + 1
    weights = [*(math.sin(number**2) for number in range(1, nodes + 1)), 0.0]
    exact = eigenpairs(laplacian(heads))
    columns: list[list[float]] = []
    while exact:  # all vectors of one eigenvalue
        same = [vector for value, vector in exact if value - exact[0][0] < 1e-9]
        exact = exact[len(same) :]
        weighted = [
            [sum(w * x * y for w, x, y in zip(weights, u, v, strict=True)) for u in same]
            for v in same
        ]
        for _, parts in eigenpairs(weighted):
            mixed = [
                sum(part * u[i] for part, u in zip(parts, same, strict=True))
                for i in range(nodes + 1)
            ]
            total = sum(w * x for w, x in zip(weights, mixed, strict=True))
            columns.append([math.copysign(1, total) * x for x in mixed])
    return [[column[node] for column in columns[1 : count + 1]] for node in range(nodes)]


def test_components_are_those_of_each_tree_alone() -> None:
    count = 12
    found = eigenvectors(HEADS, WORDS, LENGTHS, count)
    assert found.dtype == torch.float64
    for row, (heads, sizes) in enumerate(SENTENCES):
        wanted = components(heads, count)
        words = [word for word, size in enumerate([*sizes, 1]) for _ in range(size)]
        for piece, word in enumerate(words):  # all pieces of a word alike
            known = len(wanted[word])
            expected = torch.tensor(wanted[word], dtype=torch.float64)
            torch.testing.assert_close(found[row, piece, :known], expected, atol=1e-10, rtol=0)
            assert found[row, piece, known:].eq(0).all()


def beside(rows: list[int], training: bool = False) -> Context:
    """A pass over some of the sentences, without padding that they do not need."""
    n = int(LENGTHS[rows].max())
    context = pass_over(n, rows=len(rows))
    context.columns = {"heads": HEADS[rows, :n], "words": WORDS[rows, :n]}
    context.lengths, context.training = LENGTHS[rows], training
    return context


def test_a_projection_is_added() -> None:
    torch.manual_seed(0)
    e = Laplacian(dims(), vectors=5).double()
    rows = list(range(len(SENTENCES)))
    context = beside(rows)
    x = torch.randn(len(rows), context.query_positions.shape[1], 8, dtype=torch.float64)
    u = eigenvectors(HEADS, WORDS, LENGTHS, 5)[:, : x.shape[1]]
    torch.testing.assert_close(
        SiteEncodings([e]).embed(x, context), x + u @ e.out.weight.T + e.out.bias
    )


def signs(training: bool, draws: int = 300) -> Tensor:
    """Those of one sentence in many passes [draw, vector], against the fixed ones."""
    e = Laplacian(dims(), vectors=4)
    with torch.no_grad():
        e.out.weight.zero_()[:4] = torch.eye(4)
        e.out.bias.zero_()
    rows = [6] * draws
    zeros = torch.zeros(draws, int(LENGTHS[6]), 8)
    added = e.embed(zeros, beside(rows, training))[..., :4]
    fixed = e.embed(zeros[:1], beside([6]))[..., :4]
    torch.testing.assert_close(added.abs(), fixed.abs().expand_as(added))
    return (added * fixed).sum(1).sign()


def test_signs_are_drawn_in_training_for_each_sentence_and_vector() -> None:
    torch.manual_seed(0)
    assert signs(training=False).eq(1).all()
    drawn = signs(training=True)
    assert drawn.mean(0).abs().max() < 0.2  # of a deviation of 0.06
    assert (drawn[:, :3] * drawn[:, 1:]).mean(0).abs().max() < 0.2  # independent of each other


def test_what_is_no_tree_is_refused() -> None:
    e = Laplacian(dims())
    for heads, said in (
        ([2, 1, 0], "go round in a circle"),
        ([4, 0, 0], "a head is 4 of 3 pieces"),
    ):
        context = pass_over(3, rows=1)
        context.columns = {"heads": torch.tensor([heads]), "words": torch.arange(3)[None]}
        with pytest.raises(ValueError, match=said):
            e.embed(torch.zeros(1, 3, 8), context)


def test_long_chains_stay_finite() -> None:
    """300 words in a row, and an empty sentence."""
    chain = torch.arange(300)[None]
    found = eigenvectors(chain, chain, None, 8)
    assert found.isfinite().all() and found.norm(dim=1).min() > 0.9
    none = torch.zeros_like(chain)
    assert eigenvectors(none, none, torch.zeros(1), 8).eq(0).all()
