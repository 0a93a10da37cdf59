"""Depths, paths and distances against plain walks up and down random trees of words."""

import random

import pytest
import torch
from torch import Tensor

from nmt.encodings.trees.trees import (
    birth_order,
    depths,
    first_pieces,
    graph_distances,
    path_codes,
    tree_distances,
)

Heads = list[int]  # of words: the head's number from 1, 0 for a root


def forest(draw: random.Random, words: int) -> Heads:
    """A random tree, sometimes two: each word hangs on one that came before it in some order."""
    order = list(range(words))
    draw.shuffle(order)
    heads = [0] * words
    for place in range(1, words):
        if draw.random() < 0.9:
            heads[order[place]] = order[draw.randrange(place)] + 1
    return heads


def pieces(heads: Heads, sizes: list[int]) -> tuple[list[int], list[int]]:
    """The two columns as a model sees them, EOS last: word w is cut into sizes[w] pieces."""
    words = [w for w, size in enumerate(sizes) for _ in range(size)]
    first = [words.index(w) for w in range(len(sizes))]
    column = [first[heads[w] - 1] + 1 if heads[w] else 0 for w in words]
    return [*column, 0], [*words, len(sizes)]


def batch(sentences: list[tuple[Heads, list[int]]]) -> tuple[Tensor, Tensor]:
    rows = [pieces(*sentence) for sentence in sentences]
    n = max(len(heads) for heads, _ in rows)
    padded = [[x + [0] * (n - len(x)) for x in row] for row in rows]
    heads, words = (torch.tensor([row[i] for row in padded]) for i in (0, 1))
    return heads, words


def some(seed: int = 0, rows: int = 12) -> list[tuple[Heads, list[int]]]:
    draw = random.Random(seed)
    made = []
    for _ in range(rows):
        words = draw.randint(1, 9)
        made.append((forest(draw, words), [draw.randint(1, 3) for _ in range(words)]))
    return made


def way_up(heads: Heads, word: int) -> list[int]:
    """The word, its head, and so on up to its root."""
    way = [word]
    while heads[way[-1]]:
        way.append(heads[way[-1]] - 1)
    return way


def of_pieces(sentence: tuple[Heads, list[int]]) -> tuple[Heads, list[int]]:
    """Heads of words with EOS as a root, and the word of each piece."""
    heads, sizes = sentence
    return [*heads, 0], pieces(heads, sizes)[1]


SENTENCES = some()
HEADS, WORDS = batch(SENTENCES)


def test_tree_distances_are_those_of_the_formula() -> None:
    """rel(t, s) of Wang et al. 2019, word by word; t is the key and s the query."""
    found = tree_distances(HEADS, WORDS)
    for row, sentence in enumerate(SENTENCES):
        heads, words = of_pieces(sentence)
        for i, s in enumerate(words):
            for j, t in enumerate(words):
                ways = way_up(heads, t), way_up(heads, s)
                steps = len(ways[0]) - 1, len(ways[1]) - 1
                if s in ways[0] or t in ways[1]:
                    wanted = steps[0] - steps[1]
                else:
                    wanted = ((t > s) - (t < s)) * sum(steps)
                assert found[row, i, j] == wanted


@pytest.mark.parametrize("longest", [1, 2, 20])
def test_graph_distances_search_in_breadth(longest: int) -> None:
    found = graph_distances(HEADS, WORDS, longest)
    for row, sentence in enumerate(SENTENCES):
        heads, words = of_pieces(sentence)
        below = {h: [w for w, x in enumerate(heads) if x - 1 == h] for h in range(len(heads))}
        reached = []
        for start in range(len(heads)):
            lengths, front = {start: 0}, [start]
            while front:
                front = [w for h in front for w in below[h]]
                lengths |= {w: max(lengths.values()) + 1 for w in front}
            reached.append(lengths)
        for i, s in enumerate(words):
            for j, t in enumerate(words):
                wanted = longest + 1
                if t in reached[s]:
                    wanted = min(reached[s][t], longest)
                elif s in reached[t]:
                    wanted = -min(reached[t][s], longest)
                assert found[row, i, j] == wanted


def test_pieces_of_a_word_stand_together_and_sisters_apart() -> None:
    """Two sisters share their head as two pieces of a word do; `words` tells them apart."""
    heads, words = batch([([0, 1, 1], [1, 2, 1])])
    assert heads.tolist() == [[0, 1, 1, 1, 0]] and words.tolist() == [[0, 1, 1, 2, 3]]
    distances = tree_distances(heads, words)[0]
    assert distances[1, 2] == distances[2, 1] == 0
    assert distances[1, 3] == distances[2, 3] == 2 and distances[3, 1] == -2
    assert graph_distances(heads, words, 8)[0, 1, 2:4].tolist() == [0, 9]
    assert first_pieces(words).tolist() == [[0, 1, 1, 3, 4]]


def test_a_row_of_padding_alone_is_no_trouble() -> None:
    nothing = torch.zeros(2, 5, dtype=torch.long)
    assert depths(nothing).eq(0).all()
    assert tree_distances(nothing, nothing).eq(0).all()
    assert path_codes(nothing, birth_order(nothing, nothing), 3).eq(-1).all()
    assert tree_distances(nothing[:, :0], nothing[:, :0]).shape == (2, 0, 0)


@pytest.mark.parametrize(
    "heads, said",
    [([2, 3, 1], "circle"), ([1, 0], "circle"), ([3, 0], "3 of 2 pieces"), ([-1, 0], "-1 of 2")],
)
def test_refuses_what_is_no_tree(heads: Heads, said: str) -> None:
    column = torch.tensor([heads])
    words = torch.arange(len(heads))[None]
    with pytest.raises(ValueError, match=said):
        depths(column)
    with pytest.raises(ValueError, match=said):
        tree_distances(column, words)
