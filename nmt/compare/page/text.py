"""How values are written on the page: every character can be seen, numbers with a true minus."""

import re
from collections.abc import Iterable

from markupsafe import Markup

from nmt.compare import notation
from nmt.compare.notation import EMPTY
from nmt.compare.report import Score

DASH, MINUS = "\u2013", "\u2212"

# Characters that a reader cannot see, or that reorder what stands around them. Joiners between
# letters are kept, since Persian, Hindi and others are misspelt without them.
JOINERS = r"(?<=[^\W\x00-\x7f])[\u200c\u200d](?=[^\W\x00-\x7f])"
INVISIBLE = re.compile(
    f"({JOINERS})|"
    r"([\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f])"
)


def shown(text: str) -> str:
    """The text with every invisible character spelt out: `␀` to `␟`, `␡`, or `⟨U+200B⟩`."""
    return INVISIBLE.sub(_spelt, text)


def _spelt(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    code = ord(match[2])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def bdi(text: str) -> Markup:
    """Text from data inside a line: whatever its direction, the line around keeps its own."""
    return Markup('<bdi dir="auto">{}</bdi>').format(shown(text))


def listed(items: Iterable[Markup | str]) -> Markup:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = map(Markup.escape, items)
    return Markup(" and ").join([Markup(", ").join(first), last]) if first else last


def _typeset(text: str) -> str:
    return DASH if text == EMPTY else text.replace("-", MINUS)


def fixed(value: float | None, digits: int = 1) -> str:
    """`31.7`."""
    return _typeset(notation.number(value, digits))


def count(value: float | None) -> str:
    """`28,075`."""
    return _typeset(notation.count(value))


def share(value: float | None) -> str:
    """A share of 1 as `3.4 %`."""
    return DASH if value is None else f"{_typeset(notation.percent(value))} %"


def signed(value: float, digits: int = 1) -> str:
    """`+0.7`, `±0.0`, or with a true minus."""
    written = f"{abs(value):.{digits}f}"
    if float(written) == 0:
        return "±" + written
    return ("+" if value > 0 else MINUS) + written


def chance(p: float | None) -> str:
    """A p-value as `p = 0.017`, `p < 0.001`."""
    if p is None:
        return "not tested"
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds is None:
        return DASH
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def spread(score: Score) -> str:
    """`56.7 ± 0.4`, without a deviation where there is none."""
    return deviating(score.mean, score.deviation)


def deviating(mean: float | None, deviation: float | None, digits: int = 1) -> str:
    """A mean and its deviation, if it has one; never in two lines."""
    return _typeset(notation.deviating(mean, deviation, digits)).replace(" ", "\u00a0")


def tick_label(value: float) -> str:
    """A tick of an axis: `0.5`, `20`, `5k`, `2M`, `1e-05`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return _typeset(f"{value:g}")
