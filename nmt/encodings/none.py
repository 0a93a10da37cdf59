"""No positions at all: the decoder still sees order through its causal mask, the encoder none."""

from nmt.encodings.base import Encoding, Facts


class NoPositions(Encoding):
    """Answers nothing; the point of comparison (Shaw et al. 2018, table 2: k = 0)."""

    facts = Facts(relative=True, position_type="none")
