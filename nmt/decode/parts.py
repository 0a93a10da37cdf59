"""A text that is too long, in parts that are not."""

from collections.abc import Callable


def parts_of(text: str, most: int, count: Callable[[str], int]) -> list[str]:
    """Cut text into parts of at most `most` pieces each, at spaces where there are some.

    `count(text)` says how many pieces a text has; a single character may have more.
    """
    pieces = count(text)
    if pieces <= most or len(text) < 2:
        return [text]
    step = -(-len(text) // -(-pieces // most))  # characters: parts of equal length
    made, start = [], 0
    while start < len(text):
        end = min(start + step, len(text))
        if end < len(text) and (space := text.rfind(" ", start + 1, end + 1)) > 0:
            end = space
        made += parts_of(text[start:end].strip(" "), most, count)
        start = end
    return [part for part in made if part]
