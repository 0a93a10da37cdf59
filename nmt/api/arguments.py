"""Arguments of the API: what a type checker would refuse is named here in words."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt.decode.translator import Translation
from nmt.errors import UserError
from nmt.modeldir import Trained

Columns = Mapping[str, Iterable[str]]  # by name: integers for the words of each line of the text


def lines(name: str, texts: Iterable[str]) -> list[str]:
    """The texts as a list; UserError for one text, whose letters would be lines, and for none."""
    return list(each_line(name, texts))


def each_line(name: str, texts: Iterable[str]) -> Iterator[str]:
    """The same, one after the other; what is no list of texts is refused at once."""
    if isinstance(texts, str):
        raise UserError(f"{name}: a text, where a list of them is expected; write [{texts[:20]!r}]")
    if not isinstance(texts, Iterable):
        raise UserError(f"{name}: {texts!r}, where a list of texts is expected")

    def checked() -> Iterator[str]:
        for place, line in enumerate(texts):
            if not isinstance(line, str):
                raise UserError(f"{name}[{place}]: {line!r} is no text; write '' for an empty line")
            yield line

    return checked()


def single_lines(name: str, texts: Iterable[str]) -> list[str]:
    """The same as `lines`; UserError for a text of several lines, which has no single answer."""
    for place, text in enumerate(texts := lines(name, texts)):
        if "\n" in text[:-1]:  # at its end, a text may have that of its line
            raise UserError(f"{name}[{place}]: {text[:20]!r} has several lines; give each alone")
    return texts


def by_lines(
    texts: Iterable[str], translate: Callable[[Iterable[str]], Iterable[list[Translation]]]
) -> Iterator[str]:
    """Yield the translation of each text, with the line breaks of a text of several lines.

    `translate` yields the translations of each line, best first.
    """
    breaks = deque[list[str]]()  # of the texts that are being translated

    def each() -> Iterator[str]:
        for text in texts:
            parts = re.split(r"(\r?\n)", text) if "\n" in text[:-1] else [text]
            breaks.append(parts[1::2])
            yield from parts[::2]

    translated = (best.text for best, *_ in translate(each()))
    for line in translated:
        yield line + "".join([found + next(translated) for found in breaks.popleft()])


def columns(named: Columns | None) -> dict[str, list[str]]:
    """The columns as lists of lines."""
    return {name: lines(f"columns[{name!r}]", texts) for name, texts in (named or {}).items()}


def positive(**numbers: int | None) -> None:
    """Raise UserError for a number below 1; None is left to whoever takes it."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UserError(f"{name}={number}: must be at least 1")


def models(model: Any) -> list[Trained]:
    """One model or several; UserError for anything else, such as the path of one."""
    single = isinstance(model, str | Path | Trained) or not isinstance(model, Iterable)
    several: list[Any] = [model] if single else list(model)
    for one in several:
        if isinstance(one, str | Path):
            path = repr(str(one))
            raise UserError(f"model: a path, where a model is expected; write nmt.load({path})")
        if not isinstance(one, Trained):
            raise UserError(f"model: {type(one).__name__}, where one of nmt.load is expected")
    if not several:
        raise UserError("model: an empty list; give one model or more")
    return several


def models_to_run(model: Any) -> list[Trained]:
    """What `models` returns; UserError for a model in training mode, which drops at random."""
    several = models(model)
    if any(one.model.training for one in several):
        raise UserError("model: in training mode, which drops at random; call model.model.eval()")
    return several
