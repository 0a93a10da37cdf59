"""nmt-parity: does decoding with a cache equal the full pass, for every encoding?"""

import argparse
import json
import logging
import platform
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import OmegaConf

from nmt import __version__
from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.config import KINDS
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.overrides.compose import experiment_of, nearest
from nmt.overrides.options import Folders, beside, folders_of, options_of, path_of

if TYPE_CHECKING:
    from nmt.config import Settings
    from nmt.decode.parity import Cell

USAGE = """nmt-parity [encoding=all | encoding=A,B,[C,D]] [model=OPTION] [KEY=VALUE ...]
                  [--pairs] [--tokens N] [--json FILE] [--config-dir DIR]"""
EPILOG = """
KEY is seed, model.KEY, or a key of the encodings (tau, encoding.NAME.KEY); see nmt-train --help.
Without model=OPTION the model is as small as can be: 2+2 layers of width 32, 2 heads. All runs on
the CPU. Parameters are random and none stands at its initial value.

exit codes: 0 all within bounds, 70 a cell beyond its bound or not finite, 2 wrong words

  nmt-parity
  nmt-parity encoding=relative,[absolute,relative] tau=4 model.share_layers=true model.halting=true
  nmt-parity encoding=absolute,relative,rotary --pairs --json pairs.json
"""
SMALL = {
    "model.dim": 32,
    "model.feedforward_dim": 48,
    "model.heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
}
HEARD = ("model", "encoding", "seed")  # first parts of the words that change something here
WIDTH = 120  # columns of the report
NAME = 20  # columns of a name; a longer one gets a line of its own
SHORT = {"float32": "f32", "bfloat16": "bf16"}


class Row(NamedTuple):
    """One encoding, or several together, and what was measured."""

    name: str
    cells: Sequence["Cell"] = ()
    refused: str | None = None  # why no model can be built with it

    @property
    def failed(self) -> list["Cell"]:
        """Cells beyond their bounds."""
        return [cell for cell in self.cells if not cell.passed]


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Measure each encoding, print the matrix as it grows, name what failed."""
    asked = understood(argv)
    outputs.prepare([asked.json], None)
    own = beside(asked.config_dir)
    folders = folders_of(own) or ()
    encodings, words = _sorted_out(asked.words, folders)
    words = [*own, *words]
    every = "all" in encodings
    names = options_of("encoding", folders) if every else encodings
    if asked.pairs:
        names = _pairs(_representatives(folders) if every else names)
    lenient = every or asked.pairs  # else each of them was asked for by its name
    logging.captureWarnings(True)  # torch's advice about kernels does not belong into the matrix
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    rows: list[Row] = []
    waiting = [heading()]  # for the first row with numbers: a wrong word refuses them all
    for name in names:
        rows.append(measured(name, words, asked.tokens, lenient))
        waiting.append(line(rows[-1]))
        if any(row.cells for row in rows):
            _print("\n".join(waiting))
            waiting.clear()
    if not any(row.cells for row in rows):
        raise UserError(str(rows[0].refused))
    if asked.json:
        document = json.dumps(as_json(rows, words, asked.tokens), indent=1, allow_nan=False)
        outputs.write(asked.json, document.encode() + b"\n")
    _print(closing(rows))
    cells = sum(len(row.failed) for row in rows)
    if cells:
        raise UserError(
            f"cells where decoding with a cache is not the full pass: {cells}; see the table",
            Exit.DIVERGED,
        )


def understood(argv: list[str]) -> argparse.Namespace:
    """Options and words; raises SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-parity",
        usage=USAGE,
        description="Compare decoding with a cache, token by token, with one causal pass.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="KEY=VALUE", help="encodings (default: all), sizes, seed")
    add(
        "--pairs",
        action="store_true",
        help="each two of the encodings together; of all: one of each kind (hooks, positions)",
    )
    add("--tokens", type=_several, default=40, help="of the target (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    return parser.parse_intermixed_args(argv)


def _several(text: str) -> int:
    if not text.isdecimal() or int(text) < 8:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 8")
    return int(text)


def _sorted_out(given: list[str], folders: Folders) -> tuple[list[str], list[str]]:
    """The encodings, and the words for each of them; raises UserError for what has no effect."""
    from nmt.experiments.run import choices

    once(given)
    encodings, words = ["all"], []
    for word in given:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"{word}: expected key=value; see --help")
        if key == "encoding":
            encodings = list(dict.fromkeys(choices(value)))
        elif _group(key) is not None:
            raise UserError(f"{word}: changes nothing here; give model, encoding or seed")
        else:
            words.append(word)
    known = options_of("encoding", folders)
    for part in [part for name in encodings if name != "all" for part in _parts(name)]:
        if part not in known:
            raise UserError(f"encoding={part}: no such option{nearest(part, known)}")
    if any(word.startswith("model=") for word in words):
        return encodings, words
    keys = {word.partition("=")[0] for word in words}
    return encodings, [*(f"{k}={v}" for k, v in SMALL.items() if k not in keys), *words]


def _group(key: str) -> str | None:
    """The part of the config that a key belongs to, if parity does not read it."""
    first = key.lstrip("+~").split(".")[0]
    deaf = {*KINDS, "experiment", "runs", "name", "hydra"} - set(HEARD)
    return first if first in deaf else None


def _parts(name: str) -> list[str]:
    return [part.strip() for part in name.strip("[]").split(",")]


def _pairs(names: Sequence[str]) -> list[str]:
    if len(names) < 2:
        raise UserError("--pairs: name two encodings or more")
    return [f"[{','.join([*_parts(a), *_parts(b)])}]" for a, b in combinations(names, 2)]


def _representatives(folders: Folders = ()) -> list[str]:
    """One option for each kind: its class answers other questions or takes other positions.

    The option that is named as its module comes first, then the alphabet decides. Raises UserError
    for one whose class cannot be had.
    """
    from nmt.encodings.composition import hooks_of
    from nmt.encodings.lookup import find

    kinds: dict[tuple[str, ...], tuple[bool, str]] = {}
    for option in options_of("encoding", folders):
        loaded: Any = OmegaConf.load(path_of("encoding", option, folders))
        entries = loaded.get("encoding") or {}
        if "defaults" in loaded or len(entries) != 1:
            continue  # a composition already
        ((name, options),) = entries.items()
        module = str((options or {}).get("use", name))
        try:
            cls = find(module)
        except ValueError as e:
            raise UserError(f"encoding.{name}: {e}") from None
        if hooks := hooks_of(cls):
            candidate = (module != option, option)
            kind = (*hooks, cls.takes)
            kinds[kind] = min(kinds.get(kind, candidate), candidate)
    return sorted(option for _, option in kinds.values())


def measured(name: str, words: list[str], tokens: int, lenient: bool) -> Row:
    """Measure one encoding; raises UserError if it cannot be built, unless `lenient`."""
    from nmt.decode.parity import measure

    try:
        settings: Settings = experiment_of([*words, f"encoding={name}"]).settings
        return Row(name, measure(settings, tokens))
    except UserError as error:
        if not lenient:
            raise
        return Row(name, refused=str(error))


def heading() -> str:
    """What is compared, what the columns mean, and the bounds."""
    from nmt.decode.parity import BFLOAT16, CONDITIONS, FLOAT32, PRECISIONS

    lines = [
        "Largest difference of two logits: decoding with a cache, against one causal pass.",
        "",
    ]
    lines += [f"  {c.name:<7} {c.meaning}" for c in CONDITIONS]
    lines += [
        "",
        f"Bounds: float32 {FLOAT32:.0e}, bfloat16 {BFLOAT16:.0e} of the largest logit. "
        "! marks what is beyond or not finite.",
        "worst: the largest share of its bound that a cell takes.",
        "",
    ]
    names = "".join(f"{c.name:>7}" for c in CONDITIONS)
    groups = "".join(f"  {p + ' ':-<{len(names) - 2}}" for p in PRECISIONS)
    return "\n".join([*lines, f"{'':{NAME}}{groups}", f"{'encoding':{NAME}}{names * 2}  worst"])


def line(row: Row) -> str:
    """One row of the matrix, or why there is none."""
    if row.refused is not None:
        text = f"{row.name:<{NAME}}  refused: {row.refused}"
        return textwrap.fill(text, WIDTH, subsequent_indent=" " * (NAME + 2))
    cells = "".join(f"{_shown(c) + ('' if c.passed else '!'):>7}" for c in row.cells)
    worst = max(row.cells, key=lambda c: c.share)
    share = f"{min(worst.share, 9.99):.0%}" if worst.passed else "FAIL"
    end = f"  {share} {SHORT[worst.precision]} {worst.condition.name}"
    name = f"{row.name}\n{'':{NAME}}" if len(row.name) > NAME else f"{row.name:<{NAME}}"
    return name + cells + end


def _shown(cell: "Cell") -> str:
    if cell.error is not None:
        return "error"
    return f"{cell.difference:.0e}" if cell.difference else "0"


def closing(rows: Sequence[Row]) -> str:
    """How many passed, and for each encoding that did not, where and what to look at."""
    tried = [row for row in rows if row.refused is None]
    lines = [
        "",
        f"encodings {len(tried)}, refused {len(rows) - len(tried)}, "
        f"cells {sum(len(r.cells) for r in tried)}, failed {sum(len(r.failed) for r in tried)}",
    ]
    for row in tried:
        if not row.failed:
            continue
        lines += ["", f"{row.name}:"]
        for precision in SHORT:
            cells = [c for c in row.failed if c.precision == precision]
            if cells:
                named = ", ".join(f"{c.condition.name} {_shown(c)}" for c in cells)
                lines.append(f"  {precision:<8}  {named}")
        lines += [f"  {error}" for error in dict.fromkeys(c.error for c in row.failed) if error]
        if compared := [c for c in row.failed if c.error is None]:
            lines.append(f"  look at: {_look(compared)}")
    return "\n".join(
        textwrap.fill(text, WIDTH, subsequent_indent=" " * 11, replace_whitespace=False)
        for text in lines
    )


def _look(failed: Sequence["Cell"]) -> str:
    """Where the mistake is likely to be, from the simplest condition that shows it."""
    from nmt.decode.parity import CONDITIONS

    if all(cell.precision == "bfloat16" for cell in failed):
        return "what is computed in bfloat16 but needs float32 (positions, angles, long sums)"
    there = [cell.condition for cell in failed if cell.precision == "float32"]
    return min(there, key=CONDITIONS.index).look


def as_json(rows: Sequence[Row], words: list[str], tokens: int) -> dict[str, Any]:
    """All numbers, and how they were made; what is not finite is null."""
    from nmt.decode.parity import BFLOAT16, CONDITIONS, FLOAT32

    return {
        "versions": {
            "nmt": __version__,
            "python": platform.python_version(),
            "torch": version("torch"),
        },
        "words": words,
        "tokens": tokens,
        "bounds_of_largest_logit": {"float32": FLOAT32, "bfloat16": BFLOAT16},
        "conditions": {c.name: c.meaning for c in CONDITIONS},
        "passed": not any(row.failed for row in rows),
        "encodings": [
            {
                "encoding": row.name,
                "refused": row.refused,
                "passed": None if row.refused is not None else not row.failed,
                "cells": [_cell(cell) for cell in row.cells],
            }
            for row in rows
        ],
    }


def _cell(cell: "Cell") -> dict[str, Any]:
    finite = cell.difference == cell.difference
    return {
        "condition": cell.condition.name,
        "precision": cell.precision,
        "difference": cell.difference if finite else None,
        "largest_logit": cell.largest if finite else None,
        "bound": cell.bound if finite else None,
        "passed": cell.passed,
        "error": cell.error,
    }


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
