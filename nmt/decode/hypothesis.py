"""What every search gives, and how it is ranked, whichever engine searched."""

from typing import NamedTuple


class Hypothesis(NamedTuple):
    """One output of the search."""

    ids: list[int]  # without bos and eos
    score: float  # log_prob / length_penalty + uncovered
    log_prob: float  # sum over the ids, and over eos if finished
    finished: bool  # false: cut at the limit, or (if shorter) where no score was finite
    uncovered: float = 0.0  # the coverage penalty, 0 or less


def length_penalty(length: int, alpha: float, kind: str = "wu") -> float:
    """The divisor of log-probabilities; `length` counts eos.

    wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). power: length ** alpha, that of
    Marian (--normalize), transformers and CTranslate2; an output of no piece has that of one.
    """
    return ((5 + length) / 6 if kind == "wu" else max(1, length)) ** alpha
