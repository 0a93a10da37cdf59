"""Takase and Okazaki (2019), Positional Encoding to Control Output Sequence Length: what is left.

The position of a target token is the number of tokens still to come, so a decoder that is given
another length writes a text of that length. Under sinusoids this is their length-difference
encoding (LDPE).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.context import Context, Positions


@dataclass(frozen=True)
class Remaining(Positions):
    """length - index: the first of n tokens has n, the last one (eos) 1.

    noise > 0 (Oka et al. 2020, Incorporating Noisy Length Constraint): in training the length is
    off by a number drawn evenly from -noise..noise for each sentence.
    """

    noise: NonNegativeInt = 0
    integer: ClassVar[bool] = False  # whole, but below 0 where an output is longer than desired
    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    needs_lengths: ClassVar[bool] = True
    ascending: ClassVar[bool] = False

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Count down from the sentence's length: [batch, length]."""
        return noisy(context, self.noise)[:, None] - index


def noisy(context: Context, noise: int) -> Tensor:
    """The lengths [batch] of the context, in training off by up to `noise`, once per pass."""
    lengths = context.lengths
    if lengths is None:
        raise ValueError("the encoding needs the desired length of each output")
    if not (noise and context.training):
        return lengths
    return context.once(
        ("length", noise), lambda: lengths + torch.randint_like(lengths, -noise, noise + 1)
    )
