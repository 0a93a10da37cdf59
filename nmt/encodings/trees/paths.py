"""Labelled paths in trees as tensors: the edges from one word to another, up and then down.

`labels` [batch, n]: the label, of 0 .. kinds - 1, of the edge from each piece's word to its head;
that of a root is not read. `heads` and `words` are those of `trees`. A path up to the head by an
edge of label l has the step l, one down to a dependent the step kinds + l. Three more steps stand
for a whole path each: within a word, a path longer than `longest`, and none, between two trees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.positions_columns import per_token
from nmt.encodings.trees.trees import first_pieces, steps_up
from nmt.encodings.vectors.by_row import by_queries
from nmt.system.device import to_device

WITHIN, LONGER, NONE = range(3)  # steps after the 2 kinds
LARGEST = 2**53  # integers that float64 holds


@dataclass(frozen=True)
class LabelledTree:
    """The columns of a labelled tree; longer paths than `longest` are not distinguished."""

    heads: str
    labels: str
    kinds: int  # labels
    longest: int  # path

    @property
    def columns(self) -> frozenset[str]:
        """All that are read."""
        return frozenset({self.heads, self.labels, "words"})

    @property
    def starts(self) -> list[int]:
        """The least number of a path of each length to `longest`, and that of all longer ones."""
        counts = ((length + 1) * self.kinds**length for length in range(self.longest + 1))
        return [0, *accumulate(counts)]

    def check(self, most: int = LARGEST) -> None:
        """Raise ValueError for more than `most` paths."""
        if self.starts[-1] > most:
            raise ValueError(
                f"longest={self.longest}: with {self.kinds} labels there are more than {most:,} "
                "paths; shorten them"
            )

    def numbers(self, context: Context) -> Tensor:
        """The number of the path from each query to each key: [batch, query, key].

        Paths of up to `longest` steps are counted by their length, then by the steps up, then by
        labels; the last two numbers are LONGER and NONE.
        """
        names = (self.heads, "words", self.labels)
        heads, words, labels = (per_token(name, context.key_positions, context) for name in names)
        steps = steps_up(heads, words)
        at = torch.arange(heads.shape[1], device=heads.device)
        edges = (first_pieces(words) == at) & (heads > 0)  # of each word one, to its head
        above = (steps >= 0).double()
        on = above * edges[:, None]  # whether that of a word [.., c] leads from i to its root
        off = 1 - on.mT
        digit = on * labels[:, None] * float(self.kinds) ** steps.clamp(0, self.longest)
        up, code = (on @ off).long(), (digit @ off).long()  # the edges above i, and not above j
        down, length = up.mT, up + up.mT
        shown = length.clamp(max=self.longest)
        starts = to_device(torch.tensor(self.starts), heads.device)
        number = starts[shown] + up * self.kinds**shown
        number = number + code * self.kinds ** down.clamp(max=self.longest) + code.mT
        number = torch.where(length > self.longest, starts[-1], number)
        return torch.where(above @ above.mT > 0, number, starts[-1] + 1)

    def paths(self, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The steps of all different paths [path, longest], their lengths, and each pair's path.

        Beyond the end of a path there are any steps; pairs: [batch, query, key].
        """
        numbers, index = torch.unique(self.numbers(context), return_inverse=True)
        starts = to_device(torch.tensor(self.starts), index.device)
        alone = numbers >= starts[-1]
        length = (torch.bucketize(numbers, starts, right=True) - 1).masked_fill(alone, 0)
        code, kinds = numbers - starts[length], self.kinds
        up = (code // kinds**length)[:, None]
        at, last = torch.arange(self.longest, device=index.device), length[:, None] - 1
        # the lowest digit of the code is the last step down; of the steps up it is the first
        digit = torch.where(at < up, last + 1 - up + at, last - at).clamp(min=0)
        steps = code[:, None] // kinds**digit % kinds + (at >= up) * kinds
        special = torch.where(alone, numbers - starts[-1] + LONGER, WITHIN)
        steps[:, 0] = torch.where(length > 0, steps[:, 0], 2 * kinds + special)
        return steps, length.clamp(min=1), index


def with_vectors(
    f: Callable[[Tensor, Tensor], Tensor], x: Tensor, rows: Tensor, index: Tensor
) -> Tensor:
    """f(x, r) for x [batch, heads, query, any] and the vectors of pairs, r_ij = rows[index_ij].

    f gets r [batch, query, key, width] for some queries at a time. rows: [path, width]; index:
    [batch, query, key].
    """

    def part(x: Tensor, index: Tensor) -> Tensor:
        return f(x, F.embedding(index, rows.to(x.dtype)))

    batch, _, keys = index.shape
    return by_queries(part, x, index, per_query=batch * keys * rows.shape[1])
