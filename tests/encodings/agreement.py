"""What a comparison with another package consists of, and the table of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.encodings.base import Encoding


class Sides(NamedTuple):
    """One quantity, computed twice; ours on request, so that a test can change our encoding."""

    entries: Sequence[Encoding]
    ours: Callable[[], Tensor]
    theirs: Tensor

    def difference(self) -> float:
        """The largest difference; raises ValueError where the shapes differ."""
        with torch.no_grad():
            ours = self.ours()
        if ours.shape != self.theirs.shape:
            raise ValueError(f"ours is {[*ours.shape]}, theirs {[*self.theirs.shape]}")
        return float((ours - self.theirs).abs().max())


@dataclass(frozen=True)
class Agreement:
    """A promise: our encoding and a package differ by at most `bound`."""

    encoding: str  # the option, and those of its keys that matter here
    package: str
    what: str  # is compared
    sides: Callable[[], Sides]
    bound: float = 0.0

    @property
    def version(self) -> str | None:
        """Of the installed package; None where there is none."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


def theirs(module: str) -> Any:
    """Import a module of another package when a comparison needs it."""
    return import_module(module)


def table(agreements: Sequence[Agreement]) -> tuple[str, bool]:
    """Compare; returns a Markdown table, and whether all that could be compared agree."""
    lines = [
        "| encoding | package | compared | precision | largest difference | bound |",
        "|---|---|---|---|---|---|",
    ]
    agree = True
    for a in agreements:
        name = f"| `{a.encoding}` | {a.package}"
        if a.version is None:
            lines.append(f"{name} | {a.what} | | not installed | {a.bound:g} |")
            continue
        sides = a.sides()
        difference = sides.difference()
        precision = str(sides.theirs.dtype).removeprefix("torch.")
        agree = agree and difference <= a.bound
        measured = f"{difference:.1e}" if difference else "0"
        lines.append(f"{name} {a.version} | {a.what} | {precision} | {measured} | {a.bound:g} |")
    return "\n".join(lines) + "\n", agree
