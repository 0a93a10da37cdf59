"""Labelled paths against walks from word to word, and the two encodings that read them."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.context import Context
from nmt.encodings.registry import create
from nmt.encodings.trees.graph_transformer import GraphTransformer
from nmt.encodings.trees.paths import LabelledTree
from nmt.encodings.trees.structural import Structural
from nmt.encodings.vectors import by_row
from tests.encodings.attending import attend, dims, pass_over, qkv, randomise
from tests.encodings.test_trees import batch, of_pieces, some, way_up

KINDS = 4
CHAIN = ([0, 1, 2, 3, 4, 5], [1, 2, 1, 1, 1, 1])  # a path of 5 edges
SENTENCES = [*some(seed=24, rows=2), CHAIN]
HEADS, WORDS = batch(SENTENCES)
PIECES = [sum(sizes) + 1 for _, sizes in SENTENCES]  # eos included
N = HEADS.shape[1]
Walk = list[int]


def labels_of(row: int) -> list[int]:
    """The label of each word's edge; eos has one more than the largest."""
    draw = random.Random(row)
    labels = [draw.randrange(KINDS) for _ in SENTENCES[row][0]]
    return [*labels, max(labels) + 1]


LABELS = torch.zeros_like(HEADS)
for _row in range(len(SENTENCES)):
    for _piece, _word in enumerate(of_pieces(SENTENCES[_row])[1]):
        LABELS[_row, _piece] = labels_of(_row)[_word]


def walk(row: int, i: int, j: int, longest: int) -> Walk:
    """The steps from one word to another: up to the first that both hang on, and down."""
    heads, _ = of_pieces(SENTENCES[row])
    labels, ups, downs = labels_of(row), way_up(heads, i), way_up(heads, j)
    both = [word for word in ups if word in downs]
    if i == j:
        return [2 * KINDS]
    if not both:
        return [2 * KINDS + 2]
    up = [labels[word] for word in ups[: ups.index(both[0])]]
    down = [KINDS + labels[word] for word in reversed(downs[: downs.index(both[0])])]
    return [*up, *down] if len(up) + len(down) <= longest else [2 * KINDS + 1]


def pairs() -> list[tuple[int, int, int, int, int]]:
    """Row, pieces and words of all pairs of pieces."""
    found = []
    for row in range(len(SENTENCES)):
        words = of_pieces(SENTENCES[row])[1]
        for i, one in enumerate(words):
            found += [(row, i, j, one, other) for j, other in enumerate(words)]
    return found


REAL = torch.arange(N) < torch.tensor(PIECES)[:, None]


def beside() -> Context:
    context = pass_over(N, rows=len(SENTENCES))
    context.columns = {"heads": HEADS, "words": WORDS, "labels": LABELS}
    context.allowed = REAL[:, None, None, :]
    return context


@pytest.mark.parametrize("longest", [2, 9])
def test_paths_are_those_of_walks(longest: int) -> None:
    tree = LabelledTree("heads", "labels", KINDS, longest)
    steps, lengths, index = tree.paths(beside())
    kinds = set()
    for row, i, j, one, other in pairs():
        number = int(index[row, i, j])
        found = steps[number, : int(lengths[number])].tolist()
        assert found == walk(row, one, other, longest)
        kinds |= set(found)
    assert len(steps) == len(
        {(tuple(s), int(n)) for s, n in zip(steps.tolist(), lengths, strict=True)}
    )
    assert kinds >= {2 * KINDS, 2 * KINDS + 2}
    assert (2 * KINDS + 1 in kinds) == (longest < 5)


def compare(
    e: Structural | GraphTransformer,
    relation: Callable[[Walk], Tensor],
    maps: Callable[[int, int], list[Tensor]],
) -> None:
    """Logits, outputs and all gradients, in the second layer, against loops over pairs.

    `maps`: for a layer and a head, the matrices on r_ij that are added to queries, keys and values.
    """
    width = dims().head_dim
    layer = 1
    q, k, v = (t.requires_grad_() for t in qkv(N, dims(), rows=len(SENTENCES)))
    leaves = [q, k, v, *e.parameters()]
    draw = torch.Generator().manual_seed(5)
    g = torch.randn(v.shape, generator=draw, dtype=torch.float64)
    logits, _, outputs = attend(e, q, k, v, beside(), layer)
    loss = (outputs * g * REAL[:, None, :, None]).sum()
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    wanted_loss = torch.zeros((), dtype=torch.float64)
    for row, n in enumerate(PIECES):
        words = of_pieces(SENTENCES[row])[1]
        ways = [[relation(walk(row, a, b, e.labelled.longest)) for b in words] for a in words]
        for h in range(2):
            a, b, f = maps(layer, h)
            for i in range(n):
                e_ij = [
                    (q[row, h, i] + a @ ways[i][j]) @ (k[row, h, j] + b @ ways[i][j])
                    for j in range(n)
                ]
                scaled = torch.stack(e_ij) / width**0.5
                torch.testing.assert_close(logits[row, h, i, :n], scaled)
                p = scaled.softmax(0)
                o = sum(p[j] * (v[row, h, j] + f @ ways[i][j]) for j in range(n))
                torch.testing.assert_close(outputs[row, h, i], o)
                wanted_loss = wanted_loss + (o * g[row, h, i]).sum()
    wanted = torch.autograd.grad(wanted_loss, leaves, allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "path, longest", [("average", 5), ("sum", 2), ("feature", 2), ("cnn", 3), ("attention", 5)]
)
def test_structural_transformer_in_plain_loops(path: str, longest: int) -> None:
    options = {"kinds": KINDS, "longest": longest, "path": path}
    e = randomise(create({"structural": options}, dims())[0])
    assert isinstance(e, Structural)
    vectors, zero = e.vectors[0, 0], torch.zeros(4, 4, dtype=torch.float64)

    def relation(way: Walk) -> Tensor:
        if path == "feature":
            return vectors[number_of(way, longest)]
        if path == "cnn":
            return convolved(e, [vectors[step] for step in way])
        if path == "attention":
            return attended(e, [vectors[step] for step in way])
        total = sum((vectors[step] for step in way), start=torch.zeros(4, dtype=torch.float64))
        return total / len(way) if path == "average" else total

    compare(e, relation, lambda layer, _: [zero, e.key[layer, 0], e.value[layer, 0]])


def convolved(e: Structural, steps: list[Tensor]) -> Tensor:
    """r of the second layer: one place of a convolution over all steps, zeros behind them."""
    kernel = e.kernel[1, 0].view(-1, 4, 4)  # [step, in, out]
    parts = [h @ matrix for h, matrix in zip(steps, kernel, strict=False)]
    return sum(parts, start=e.kernel_bias[1]).clamp(min=0)


def attended(e: Structural, steps: list[Tensor]) -> Tensor:
    """r of the second layer: steps attend to each other, and their mean has learned weights."""
    q, k, v = ([h @ matrix for h in steps] for matrix in e.among_steps[1, 0].split(4, dim=1))
    results = []
    for one in q:
        p = torch.stack([one @ other / 2 for other in k]).softmax(0)
        results.append(sum(share * value for share, value in zip(p, v, strict=True)))
    hidden = [(one @ e.weigh_in[1, 0]).tanh() @ e.weigh_out[1, 0, :, 0] for one in results]
    weights = torch.stack(hidden).softmax(0)
    return torch.stack([w * one for w, one in zip(weights, results, strict=True)]).sum(0)


def number_of(way: Walk, longest: int) -> int:
    """Its place among all paths: the shorter first, then those with fewer steps up, then labels."""
    counts = [(length + 1) * KINDS**length for length in range(longest + 1)]
    if way[0] >= 2 * KINDS:
        return {0: 0, 1: sum(counts), 2: sum(counts) + 1}[way[0] - 2 * KINDS]
    up = [step for step in way if step < KINDS]
    down = [step - KINDS for step in way if step >= KINDS]
    code = sum(label * KINDS**place for place, label in enumerate(up)) * KINDS ** len(down)
    code += sum(label * KINDS**place for place, label in enumerate(reversed(down)))
    return sum(counts[: len(way)]) + len(up) * KINDS ** len(way) + code


def gru(cell: nn.GRU, suffix: str, inputs: list[Tensor]) -> Tensor:
    """The last state, gate by gate."""
    w, u, b, c = (
        getattr(cell, f"{n}_l0{suffix}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = torch.zeros(cell.hidden_size, dtype=torch.float64)
    for x in inputs:
        (r, z, n), (rh, zh, nh) = (w @ x + b).chunk(3), (u @ h + c).chunk(3)
        r, z = (r + rh).sigmoid(), (z + zh).sigmoid()
        h = (1 - z) * (n + r * nh).tanh() + z * h
    return h


def test_graph_transformer_in_plain_loops() -> None:
    e = randomise(GraphTransformer(dims(), kinds=KINDS, longest=4, width=3))
    zero = torch.zeros(4, 6, dtype=torch.float64)

    def relation(way: Walk) -> Tensor:
        inputs = [e.steps[0, 0, step] for step in way]
        return torch.cat([gru(e.gru, "", inputs), gru(e.gru, "_reverse", inputs[::-1])])

    compare(e, relation, lambda layer, h: [e.query[layer, h], e.key[layer, h], zero])


def test_graph_transformer_of_a_long_text_is_the_same_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of the tokens have more numbers than are held at a time."""
    n = 20
    monkeypatch.setattr(by_row, "CHUNK", 7 * n * 2 * 64)  # seven queries at a time
    e = randomise(GraphTransformer(dims(), kinds=KINDS, longest=2))
    q, k, v = (t.requires_grad_() for t in qkv(n, dims(), rows=1))
    context = pass_over(n, rows=1)
    at = torch.arange(n)[None]
    context.columns = {"heads": at // 2, "words": at, "labels": at % KINDS}
    found = attend(e, q, k, v, context)[0]
    states, index = e._states(context)
    r = states[index]
    to_query, to_key = (torch.einsum("hdw,bijw->bhijd", m[0], r) for m in (e.query, e.key))
    queries, keys = q[:, :, :, None] + to_query, k[:, :, None] + to_key
    wanted = (queries * keys).sum(-1) / 2
    torch.testing.assert_close(found, wanted)
    leaves = [q, k, *e.parameters()]
    one, other = (torch.autograd.grad(t.square().mean(), leaves) for t in (found, wanted))
    torch.testing.assert_close(one, other)
