"""Which encodings nmt-parity measures, and its matrix: a row for each, a column for a condition."""

import json
import logging
import platform
import textwrap
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import combinations
from typing import NamedTuple

import torch

from nmt import __version__
from nmt.device import device_name
from nmt.encodings.composition import hooks_of
from nmt.encodings.lookup import find
from nmt.errors import UserError
from nmt.inspect import parity
from nmt.inspect.parity import BOUNDS, CONDITIONS, Deviation
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import Folders, entries_of, options_of

SMALL = {
    "model.dim": 32,
    "model.feedforward_dim": 48,
    "model.heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
}
WIDTH = 120  # columns of the report
NAME = 20  # columns of a name; a longer one gets a line of its own
SHORT = {"float32": "f32", "bfloat16": "bf16"}
ONLY_REDUCED = "what is computed in bfloat16 but needs float32 (positions, angles, long sums)"


class Proof(NamedTuple):
    """One encoding, or several together, and what was measured."""

    name: str
    deviations: Sequence[Deviation] = ()
    refused: str | None = None  # why no model can be built with it

    @property
    def failed(self) -> list[Deviation]:
        """Deviations beyond their bounds."""
        return [deviation for deviation in self.deviations if not deviation.passed]


def prove(
    encodings: Sequence[str] | None,
    overrides: list[str],
    tokens: int,
    show: Callable[[str], None],
    *,
    pairs: bool = False,
    folders: Folders = (),
    device: torch.device = parity.CPU,
) -> list[Proof]:
    """Measure each encoding, each two of them for `pairs`, and show the matrix as it grows.

    None stands for all encodings; of these, `pairs` takes one of each kind. Raises UserError if
    one that was named cannot be built, or none at all.
    """
    logging.captureWarnings(True)  # torch's advice about kernels does not belong into the matrix
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    names = options_of("encoding", folders) if encodings is None else encodings
    if pairs:
        names = pairs_of(representatives(folders) if encodings is None else names)
    lenient = encodings is None or pairs  # else each of them was named
    proofs: list[Proof] = []
    waiting = [heading()]  # for the first row with numbers: a wrong override refuses them all
    for name in names:
        proofs.append(measured(name, overrides, tokens, lenient, device))
        waiting.append(row(proofs[-1]))
        if any(proof.deviations for proof in proofs):
            show("\n".join(waiting))
            waiting.clear()
    if waiting:
        raise UserError(str(proofs[0].refused))
    return proofs


def sized(overrides: Sequence[str]) -> list[str]:
    """The overrides, and those of a model as small as can be if they choose no model."""
    keys = {override.partition("=")[0] for override in overrides}
    small = {} if "model" in keys else SMALL
    return [*(f"{k}={v}" for k, v in small.items() if k not in keys), *overrides]


def pairs_of(names: Sequence[str]) -> list[str]:
    """Each two of the encodings as one choice, [a,b]; raises UserError for less than two."""
    if len(names) < 2:
        raise UserError("--pairs: name two encodings or more")
    inner = [name.strip("[]").replace(" ", "") for name in names]
    return [f"[{a},{b}]" for a, b in combinations(inner, 2)]


def representatives(folders: Folders = ()) -> list[str]:
    """One option for each kind: its class answers other questions or takes other positions.

    The option that is named as its module comes first, then the alphabet decides. Raises UserError
    for one whose class cannot be had.
    """
    kinds: dict[tuple[str, ...], tuple[bool, str]] = {}
    for option in options_of("encoding", folders):
        entries = entries_of(option, folders)
        for name, settings in entries.items() if len(entries) == 1 else ():
            module = str(settings.get("use", name))
            try:
                cls = find(module)
            except ValueError as e:
                raise UserError(f"encoding.{name}: {e}") from None
            if hooks := hooks_of(cls):
                candidate = (module != option, option)
                kind = (*hooks, cls.takes)
                kinds[kind] = min(kinds.get(kind, candidate), candidate)
    return sorted(option for _, option in kinds.values())


def measured(
    name: str, overrides: list[str], tokens: int, lenient: bool, device: torch.device = parity.CPU
) -> Proof:
    """Measure one encoding; raises UserError if it cannot be built, unless `lenient`."""
    try:
        settings = experiment_of([*overrides, f"encoding={name}"]).settings
        return Proof(name, parity.measure(settings, tokens, device=device))
    except UserError as error:
        if not lenient:
            raise
        return Proof(name, refused=str(error))


def heading() -> str:
    """What is compared, what the columns mean, and the bounds."""
    meanings = "\n".join(f"  {c.name:<7} {c.meaning}" for c in CONDITIONS)
    bounds = ", ".join(f"{precision} {share:.0e}" for precision, share in BOUNDS.items())
    names = "".join(f"{c.name:>7}" for c in CONDITIONS)
    groups = "".join(f"  {precision + ' ':-<{len(names) - 2}}" for precision in BOUNDS)
    return f"""Largest difference of two logits: decoding with a cache, against one causal pass.

{meanings}

Bounds: {bounds} of the largest logit. ! marks what is beyond or not finite.
worst: the largest share of its bound that a cell takes.

{"":{NAME}}{groups}
{"encoding":{NAME}}{names * 2}  worst"""


def row(proof: Proof) -> str:
    """One row of the matrix, or why there is none."""
    if proof.refused is not None:
        text = f"{proof.name:<{NAME}}  refused: {proof.refused}"
        return textwrap.fill(text, WIDTH, subsequent_indent=" " * (NAME + 2))
    cells = "".join(f"{_number(d) + '!' * (not d.passed):>7}" for d in proof.deviations)
    worst = max(proof.deviations, key=lambda deviation: deviation.share)
    share = f"{min(worst.share, 9.99):.0%}" if worst.passed else "FAIL"
    name = f"{proof.name}\n{'':{NAME}}" if len(proof.name) > NAME else f"{proof.name:<{NAME}}"
    return f"{name}{cells}  {share} {SHORT[worst.precision]} {worst.condition.name}"


def _number(deviation: Deviation) -> str:
    if deviation.error is not None:
        return "error"
    return f"{deviation.difference:.0e}" if deviation.difference else "0"


def closing(proofs: Sequence[Proof]) -> str:
    """How many passed, and for each encoding that did not, where and what to look at."""
    built = [proof for proof in proofs if proof.refused is None]
    cells = sum(len(proof.deviations) for proof in built)
    failed = sum(len(proof.failed) for proof in built)
    counts = f"encodings {len(built)}, refused {len(proofs) - len(built)}, cells {cells}"
    lines = ["", f"{counts}, failed {failed}"]
    for proof in built:
        if proof.failed:
            lines += ["", f"{proof.name}:", *_diagnosis(proof.failed)]
    return "\n".join(
        textwrap.fill(text, WIDTH, subsequent_indent=" " * 11, replace_whitespace=False)
        for text in lines
    )


def _diagnosis(failed: Sequence[Deviation]) -> list[str]:
    """What failed in each precision, what was raised, and where the mistake is likely to be."""
    lines = []
    for precision in BOUNDS:
        cells = [f"{d.condition.name} {_number(d)}" for d in failed if d.precision == precision]
        lines += [f"  {precision:<8}  {', '.join(cells)}"] if cells else []
    lines += [f"  {error}" for error in dict.fromkeys(d.error for d in failed) if error]
    if computed := [d for d in failed if d.error is None]:
        exact = [d.condition for d in computed if d.precision == "float32"]
        simplest = min(exact, key=CONDITIONS.index, default=None)  # which tells most
        lines.append(f"  look at: {simplest.look if simplest else ONLY_REDUCED}")
    return lines


def as_json(
    proofs: Sequence[Proof],
    overrides: list[str],
    tokens: int,
    device: torch.device = parity.CPU,
) -> str:
    """All numbers, and how they were made; what is not finite is null."""
    versions = {"nmt": __version__, "python": platform.python_version(), "torch": version("torch")}
    document = {
        "versions": versions,
        "device": device_name(device),
        "overrides": overrides,
        "tokens": tokens,
        "bounds_of_largest_logit": BOUNDS,
        "conditions": {c.name: c.meaning for c in CONDITIONS},
        "passed": not any(proof.failed for proof in proofs),
        "encodings": [
            {
                "encoding": proof.name,
                "refused": proof.refused,
                "passed": None if proof.refused is not None else not proof.failed,
                "cells": [_numbers(deviation) for deviation in proof.deviations],
            }
            for proof in proofs
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _numbers(deviation: Deviation) -> dict[str, object]:
    numbers = {
        "difference": deviation.difference,
        "largest_logit": deviation.largest,
        "bound": deviation.bound,
    }
    finite = deviation.difference == deviation.difference
    return {
        "condition": deviation.condition.name,
        "precision": deviation.precision,
        **(numbers if finite else dict.fromkeys(numbers)),
        "passed": deviation.passed,
        "error": deviation.error,
    }
