"""Labelled paths in trees as tensors: the edges from one word to another, up and then down.

`labels` [batch, n]: the label, of 0 .. kinds - 1, of the edge from each piece's word to its head;
that of a root is not read. `heads` and `words` are those of `trees`. A path up to the head by an
edge of label l has the step l, one down to a dependent the step kinds + l. Three more steps stand
for a whole path each: within a word, a path longer than `longest`, and none, between two trees.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.positions_columns import per_token
from nmt.encodings.trees import first_pieces, steps_up

WITHIN, LONGER, NONE = range(3)  # after the 2 kinds steps
LARGEST = 2**53  # integers that float64 holds


@dataclass(frozen=True)
class LabelledTree:
    """The columns of a labelled tree, and how far its paths are told apart."""

    heads: str
    labels: str
    kinds: int  # labels
    longest: int  # path

    @property
    def names(self) -> frozenset[str]:
        """All columns that are read."""
        return frozenset({self.heads, self.labels, "words"})

    @property
    def steps(self) -> int:
        """How many different steps there are."""
        return 2 * self.kinds + 3

    @property
    def distinct(self) -> int:
        """How many paths have a number of their own."""
        return sum((length + 1) * self.kinds**length for length in range(self.longest + 1))

    def check(self, site: str, most: int = LARGEST) -> None:
        """Raise ValueError for a site without columns, or more than `most` paths."""
        if site != "encoder":
            raise ValueError(f"where={site}: the column {self.heads!r} is parallel to the source")
        if self.distinct > most:
            raise ValueError(
                f"longest={self.longest}: with {self.kinds} labels there are {self.distinct:,} "
                f"paths, more than {most:,}; shorten them"
            )

    def numbers(self, context: Context) -> Tensor:
        """The number of the path from each query to each key: [batch, query, key].

        Paths of up to `longest` steps are counted by their length, then by the steps up, then by
        labels; the last two numbers are LONGER and NONE.
        """
        names = (self.heads, "words", self.labels)
        heads, words, labels = (per_token(name, context.keys, context) for name in names)
        steps = steps_up(heads, words)
        place = torch.arange(heads.shape[1], device=heads.device)
        edges = (first_pieces(words) == place) & (heads > 0)  # of each word one, to its head
        above = (steps >= 0).double()
        on = above * edges[:, None]  # whether that of a word [.., c] leads from i to its root
        off = 1 - on.mT
        digit = on * labels[:, None] * float(self.kinds) ** steps.clamp(0, self.longest)
        up, code = (on @ off).long(), (digit @ off).long()  # the edges above i, and not above j
        down, length = up.mT, up + up.mT
        shown = length.clamp(max=self.longest)
        number = self._starts(heads.device)[shown] + up * self.kinds**shown
        number = number + code * self.kinds ** down.clamp(max=self.longest) + code.mT
        number = torch.where(length > self.longest, self.distinct, number)
        return torch.where(above @ above.mT > 0, number, self.distinct + 1)

    def paths(self, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The steps of all different paths [path, longest], their lengths, and each pair's path.

        Beyond the end of a path there are any steps; pairs: [batch, query, key].
        """
        numbers, index = torch.unique(self.numbers(context), return_inverse=True)
        starts, alone = self._starts(index.device), numbers >= self.distinct
        length = (torch.bucketize(numbers, starts, right=True) - 1).masked_fill(alone, 0)
        code, kinds = numbers - starts[length], self.kinds
        up = (code // kinds**length)[:, None]
        at, last = torch.arange(self.longest, device=index.device), length[:, None] - 1
        # the lowest digit of the code is the last step down; of the steps up it is the first
        digit = torch.where(at < up, last + 1 - up + at, last - at).clamp(min=0)
        steps = code[:, None] // kinds**digit % kinds + (at >= up) * kinds
        special = torch.where(alone, numbers - self.distinct + LONGER, WITHIN)
        steps[:, 0] = torch.where(length > 0, steps[:, 0], 2 * kinds + special)
        return steps, length.clamp(min=1), index

    def _starts(self, device: torch.device) -> Tensor:
        """The least number of a path of each length [longest + 1]."""
        length = torch.arange(self.longest, device=device)
        return F.pad(((length + 1) * self.kinds**length).cumsum(0), (1, 0))
