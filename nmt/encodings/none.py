"""No positions at all: the decoder still sees order through its causal mask, the encoder none."""

from typing import ClassVar

from nmt.encodings.base import Encoding


class NoPositions(Encoding):
    """Answers nothing; the point of comparison (Shaw et al. 2018, table 2: k = 0)."""

    relative: bool = True
    takes: ClassVar[str] = "nothing"
