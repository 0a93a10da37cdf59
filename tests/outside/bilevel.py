"""The two levels of BiPE (He et al. 2024) from the tokens, as somebody else's package has them."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.context import Context, Positions


@dataclass(frozen=True)
class Bilevel(Positions):
    """The place of a token in its segment (inner), or the number of the segment (outer).

    A segment ends with the token `end`, such as a full stop.
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    end: NonNegativeInt = 0
    level: Literal["inner", "outer"] = "inner"

    @property
    def ascending(self) -> bool:
        """Numbers grow; places begin anew."""
        return self.level == "outer"

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Positions [batch, length] of tokens at index [batch | 1, length]."""
        ends = context.once(("bilevel", self.end), lambda: self._ends(context))
        begins = F.pad(ends[:, :-1], (1, 0))  # the token after an end
        positions = begins.cumsum(-1)
        if self.level == "inner":
            places = torch.arange(ends.shape[1], device=ends.device)
            positions = places - (places * begins).cummax(-1).values
        return positions.gather(1, index.expand(len(positions), -1))

    def _ends(self, context: Context) -> Tensor:
        """Which tokens end a segment [batch, token]; a decoder's are all so far."""
        if context.tokens is None:
            raise ValueError("at=bilevel: it reads tokens, which are not known here")
        ends = context.tokens == self.end
        if context.state is None:
            return ends
        name = f"bilevel.{self.end}"
        if (before := context.state.get(name)) is not None:
            ends = torch.cat([before, ends], 1)
        context.state[name] = ends
        return ends
