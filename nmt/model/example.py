"""Made-up inputs for a model: what tests, parity and timings feed to any encoding."""

import torch
from torch import Tensor


def ids(rows: int, length: int, vocab: int, seed: int = 0) -> Tensor:
    """Random token ids [rows, length] above the special ones."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(4, vocab, (rows, length), generator=draw)


def columns(names: set[str], source: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """A column for each name, as integers beside source ids [rows, length] that may be padded.

    `heads` holds a random tree, `words` counts tokens, a name that ends in `language` gives one
    number for each sentence, 0 and 1 in turns [rows, 1], and any other a permutation of the tokens.
    """
    draw = torch.Generator().manual_seed(seed)
    real = source != 0
    made: dict[str, Tensor] = {}
    for name in sorted(names):
        if name.endswith("language"):
            first = torch.randint(0, 2, (1,), generator=draw)
            made[name] = ((torch.arange(len(source)) + first) % 2)[:, None]
            continue
        rows = torch.zeros_like(source)
        for row, n in enumerate(real.sum(1).tolist()):
            order = torch.randperm(n, generator=draw)
            if name == "heads":  # each token hangs on one that came before it in a random order
                for place in range(1, n):
                    above = order[torch.randint(0, place, (), generator=draw)]
                    rows[row, order[place]] = above + 1
            else:
                rows[row, :n] = torch.arange(n) if name == "words" else order
        made[name] = rows
    return made
