"""The state of a decoder follows its rows, whatever they do."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.model.cache import State
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
        ["encoding=relative", f"+encoding.relative.{CROSS}"],
        ["encoding=lstm"],
        ["encoding=complex_order"],
    ],
    ids=lambda words: words[0],
)
def test_steps_say_what_a_full_pass_says(words: list[str], tiny: Make, ids: Ids) -> None:
    model = tiny(*words)
    for seed in range(3):
        said, should, _ = decoded(model, ids, beams(seed))
        assert torch.allclose(said, should, atol=1e-5)
