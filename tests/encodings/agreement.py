"""What a comparison with another package consists of, and the table of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # one quantity, as nmt and as the package computes it


@dataclass(frozen=True)
class Agreement:
    """A promise: an encoding of nmt and a package differ by at most `bound`."""

    encoding: str  # the option, and those of its keys that matter here
    package: str
    what: str  # is compared
    compute: Callable[[], Pair]
    bound: float = 0.0

    @property
    def version(self) -> str | None:
        """Of the installed package; None where there is none."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None

    def compare(self) -> tuple[float, torch.dtype]:
        """The largest difference, and in which precision; ValueError where the shapes differ."""
        with torch.no_grad():
            result, wanted = self.compute()
            if result.shape != wanted.shape:
                raise ValueError(f"nmt gives {[*result.shape]}, {self.package} {[*wanted.shape]}")
            return float((result - wanted).abs().max()), wanted.dtype


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
        difference, dtype = a.compare()
        precision = str(dtype).removeprefix("torch.")
        agree = agree and difference <= a.bound
        measured = f"{difference:.1e}" if difference else "0"
        lines.append(f"{name} {a.version} | {a.what} | {precision} | {measured} | {a.bound:g} |")
    return "\n".join(lines) + "\n", agree
