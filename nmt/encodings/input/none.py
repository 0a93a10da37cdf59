"""No positions at all: the decoder still sees order through its causal mask, the encoder none."""

from nmt.encodings.base import Encoding


class NoPositions(Encoding):
    """Does nothing: the baseline (Shaw et al. 2018, table 2: k = 0)."""

    relative = True
    position_type = "none"
