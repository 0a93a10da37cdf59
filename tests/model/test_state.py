"""The state of a decoder follows its rows, whatever they do."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.model.cache import Cache, State
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
STEPS, SENTENCES, BEAM = 14, 5, 3


def beams(seed: int) -> list[list[list[int]]]:
    """Rows with which each step of a made-up search begins: sentences end, and beams narrow."""
    draw = random.Random(seed)
    live, width = SENTENCES, BEAM
    steps = [[[n] for n in range(live)], [[n] * width for n in range(live)]]
    for _ in range(STEPS - 2):
        kept = [n for n in range(live) if draw.random() < 0.85] or [0]
        new_width = draw.choice([width, width, width, max(1, width - 1), BEAM])
        steps.append([[n * width + draw.randrange(width) for _ in range(new_width)] for n in kept])
        live, width = len(kept), new_width
    return steps


def decoded(
    model: Transformer, ids: Ids, steps: list[list[list[int]]]
) -> tuple[Tensor, Tensor, State]:
    """The last logits [rows, vocab] with a cache, and those of a full pass."""
    source = ids(SENTENCES, 6)
    source[1, 4:] = 0
    origin, prefix = torch.arange(SENTENCES), torch.empty(SENTENCES, 0, dtype=torch.long)
    with torch.inference_mode():
        state = model.start(source)
        for number, rows in enumerate(steps):
            state.reorder(torch.tensor(rows))  # at first, before any key is cached
            chosen = torch.tensor(rows).flatten()
            origin, prefix = origin[chosen], prefix[chosen]
            tokens = ids(len(origin), 1, seed=number)
            said = model.step(tokens[:, 0], state)
            prefix = torch.cat([prefix, tokens], 1)
        return said, model(source[origin], prefix)[:, -1], state


CROSS = "where=[encoder,decoder,cross]"


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=absolute"],
        ["encoding=relative", f"+encoding.relative.{CROSS}"],
        pytest.param(["encoding=rotary", f"+encoding.rotary.{CROSS}"], marks=pytest.mark.slow),
        ["encoding=lstm"],
        pytest.param(["encoding=complex_order"], marks=pytest.mark.slow),
    ],
    ids=lambda words: words[0],
)
def test_steps_say_what_a_full_pass_says(words: list[str], tiny: Make, ids: Ids) -> None:
    model = tiny(*words)
    for seed in range(6):
        said, should, _ = decoded(model, ids, beams(seed))
        assert torch.allclose(said, should, atol=1e-5)


@torch.inference_mode()
def test_the_source_is_kept_once_for_a_beam(tiny: Make, ids: Ids) -> None:
    model = tiny("encoding=absolute")
    _, _, state = decoded(model, ids, beams(0)[:2])
    assert state.beams == BEAM
    cross = state.cross_caches[0].all()[0]
    assert len(state.memory) == len(state.allowed) == len(cross) == SENTENCES
    state.reorder(torch.tensor([[3, 4, 3], [6, 6, 7]]))
    assert (state.beams, len(state.memory), len(state.cross_caches[0].all()[0])) == (3, 2, 2)
    assert len(state.self_caches[0].all()[0]) == 6


def test_a_cache_of_fixed_size_holds_what_it_was_given() -> None:
    cache = Cache(fixed=True)
    k = torch.randn(4, 2, 3, 5)
    assert cache.append(k, -k)[0] is k
    cache.reorder(torch.tensor([2, 3, 2]))
    assert torch.equal(cache.all()[0], k[[2, 3, 2]]) and torch.equal(cache.all()[1], -k[[2, 3, 2]])
    assert [tensor.shape[2] for tensor in cache.tensors] == [3, 3]


@torch.inference_mode()
def test_nothing_is_left_of_no_rows(tiny: Make, ids: Ids) -> None:
    state: Any = decoded(tiny("encoding=absolute"), ids, beams(0)[:3])[2]
    state.reorder(torch.empty(0, BEAM, dtype=torch.long))
    assert len(state.memory) == 0
