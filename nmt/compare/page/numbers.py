"""How numbers are written on the page."""

from nmt.compare.report import SIGNIFICANT, Score

EMPTY = "\u2013"
STAR, BEYOND = "*", "^"


def fixed(value: float | None, digits: int = 1) -> str:
    """`31.7`; a true minus; a dash for None."""
    if value is None:
        return EMPTY
    return f"{value:.{digits}f}".replace("-", "\u2212")


def signed(value: float, digits: int = 1) -> str:
    """`+0.7`, `±0.0`, or with a true minus."""
    written = f"{abs(value):.{digits}f}"
    if float(written) == 0:
        return "±" + written
    return ("+" if value > 0 else "\u2212") + written


def count(value: float | None) -> str:
    """`28,075`."""
    return EMPTY if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share of 1 as `3.4 %`."""
    return EMPTY if value is None else f"{100 * value:.1f} %"


def chance(p: float | None) -> str:
    """A p-value as `p = 0.017`, `p < 0.001`."""
    if p is None:
        return "not tested"
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds is None:
        return EMPTY
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def spread(score: Score) -> str:
    """`56.7 ± 0.4`, without a deviation where there is none."""
    written = fixed(score.mean)
    return written if score.deviation is None else f"{written}\u00a0±\u00a0{fixed(score.deviation)}"


def significant(score: Score) -> bool:
    """Whether the paired test tells the system from the baseline."""
    return score.p is not None and score.p < SIGNIFICANT


def short(value: float) -> str:
    """A tick of an axis: `0.5`, `20`, `5k`, `2M`, `1e-05`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("-", "\u2212")
