"""Markup from small functions: every text is escaped, and nothing in it stays invisible."""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

VOID = {"br", "hr", "img", "input", "link", "meta"}

# Characters that a reader cannot see, or that reorder what stands around them. Joiners between
# letters are kept, since Persian, Hindi and others are misspelt without them.
JOINERS = r"(?<=[^\W\x00-\x7f])[\u200c\u200d](?=[^\W\x00-\x7f])"
INVISIBLE = (
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
UNSEEN = re.compile(f"({JOINERS})|({INVISIBLE})")


class Markup(str):
    """Text that is markup already and is not escaped again."""


Child: TypeAlias = "str | Markup | Iterable[Child] | None"
Value: TypeAlias = str | int | float | bool | None


def shown(text: str) -> str:
    """The text with every invisible character spelt out: `␀` to `␟`, `␡`, or `⟨U+200B⟩`."""
    return UNSEEN.sub(_spelt, text)


def _spelt(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    code = ord(found[2])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def text(words: str) -> Markup:
    """Words as markup."""
    return Markup(html.escape(shown(words)))


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element; strings are escaped, Markup is not, None is left out, lists are followed.

    An attribute `class_` is written `class`, `data_v` is written `data-v`; None and False leave
    an attribute out, True writes its bare name.
    """
    opening = name + "".join(_attributes(attributes))
    if name in VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def _attributes(attributes: dict[str, Value]) -> Iterable[str]:
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        yield f" {name}" if value is True else f' {name}="{html.escape(shown(str(value)))}"'


def join(children: Iterable[Child]) -> Markup:
    """Children one after the other."""
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield text(child)
        elif child is not None:
            yield from _flat(child)


def bdi(words: str) -> Markup:
    """Words from data inside a line: whatever their direction, the line around keeps its own."""
    return tag("bdi", words, dir="auto")


def listed(items: Iterable[Child]) -> list[Child]:
    """`a`, `a and b`, `a, b and c`."""
    whole = list(items)
    parts: list[Child] = []
    for i, item in enumerate(whole):
        parts += [" and " if i == len(whole) - 1 else ", ", item] if i else [item]
    return parts


def section(name: str, title: str, *children: Child) -> Markup:
    """A section of the page with its heading, to which the navigation leads."""
    heading = tag("h2", title, id=f"{name}-heading")
    return tag("section", heading, *children, id=name, aria_labelledby=f"{name}-heading")


def nothing(words: str) -> Markup:
    """What stands in a section for which the report has no values."""
    return tag("p", words, class_="none")


def details(summary: Child, *children: Child, **attributes: Value) -> Markup:
    """A part that the reader may open."""
    return tag("details", tag("summary", summary), *children, **attributes)


def box(label: str, *children: Child, kind: str = "") -> Markup:
    """A wide thing that scrolls in its own box, by keyboard too."""
    name = f"box {kind}".rstrip()
    return tag("div", *children, class_=name, role="region", aria_label=label, tabindex=0)
