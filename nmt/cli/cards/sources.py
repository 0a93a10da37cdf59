"""What the source text of the encodings says, read without running it: importing torch is slow."""

import ast
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nmt.cli.options import Folders, entries_of, options_of

FOLDER = Path(__file__).parent.parent.parent / "encodings"
AT_INPUT = {"embed", "layer", "readout"}
HOOKS = AT_INPUT | {"project", "scores", "bias", "values"}
ROOTS = ("Encoding", "Positions")  # what these define is the answer "nothing"

NOTHING = "no positions"
INPUT = "absolute positions, at the input"
INSIDE = "absolute positions, in attention"
DISTANCES = "distances, in attention"
PROCESSING = "order by recurrence or convolution"
COLUMNS = "positions from columns beside the text"
COMPOSED = "several of these at once"
GROUPS = (NOTHING, INPUT, INSIDE, DISTANCES, PROCESSING, COLUMNS, COMPOSED)


class Source(NamedTuple):
    """One class, as its file says."""

    bases: list[str]
    attributes: dict[str, Any]
    methods: set[str]


def grouped(folders: Folders = ()) -> dict[str, list[str]]:
    """The options of each group that has any, in the order of GROUPS."""
    groups: dict[str, list[str]] = {name: [] for name in GROUPS}
    for option in options_of("encoding", folders):
        groups[group_of(option, folders)].append(option)
    return {name: options for name, options in groups.items() if options}


def group_of(option: str, folders: Folders = ()) -> str:
    """Where an option stands in the list.

    By what its class overrides: at the input `embed`, `layer` and `readout` alone, in attention
    any other hook. An encoding that changes nothing under a common shift and works at the input
    alone must get the order from processing word after word.
    """
    groups = {_group(name, options) for name, options in entries_of(option, folders).items()}
    if COLUMNS in groups:
        return COLUMNS
    if groups == {INPUT, INSIDE}:
        return INSIDE
    return groups.pop() if len(groups) == 1 else COMPOSED


def _group(name: str, options: dict[str, Any]) -> str:
    cls = _encoding_in(str(options.get("use", name)))
    hooks = {m for c in _line(cls) for m in c.methods} & HOOKS
    if not hooks:
        return NOTHING
    if _reads_columns(cls, options.get("at", {"index": {}})):
        return COLUMNS
    relative = next((c.attributes["relative"] for c in _line(cls) if "relative" in c.attributes), 0)
    if hooks <= AT_INPUT:
        return PROCESSING if relative else INPUT
    return DISTANCES if relative else INSIDE


def _reads_columns(cls: str, at: Any) -> bool:
    """Whether the class, or the positions it is given, override `columns`."""
    name = at if isinstance(at, str) else next(iter(at))
    positions = _positions().get(name, "")
    return any("columns" in c.methods for start in (cls, positions) for c in _line(start))


def _line(name: str) -> list[Source]:
    """A class and what it inherits from, nearest first, up to the seam."""
    if name in ROOTS or name not in _classes():
        return []
    cls = _classes()[name]
    return [cls, *(above for base in cls.bases for above in _line(base))]


def _encoding_in(module: str) -> str:
    """The name of the class that descends from Encoding in a module; '' where there is none."""
    path = FOLDER / f"{module}.py"
    for node in _parsed(path).body if path.is_file() else []:
        if isinstance(node, ast.ClassDef) and _descends(node.name):
            return node.name
    return ""


def _descends(name: str) -> bool:
    bases = _classes()[name].bases if name in _classes() else []
    return "Encoding" in bases or any(_descends(base) for base in bases)


@cache
def _classes() -> dict[str, Source]:
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = Source(
                    [base.id for base in node.bases if isinstance(base, ast.Name)],
                    dict(filter(None, map(_attribute, node.body))),
                    {f.name for f in node.body if isinstance(f, ast.FunctionDef)},
                )
    return found


def _attribute(node: ast.stmt) -> tuple[str, Any] | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        target, value = node.target.id, node.value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        target, value = node.targets[0].id, node.value
    else:
        return None
    return (target, value.value) if isinstance(value, ast.Constant) else None


@cache
def _positions() -> dict[str, str]:
    """The names of `at:` and their classes."""
    return {
        str(key.value): value.id
        for node in ast.walk(_parsed(FOLDER / "at.py"))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name)
    }


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
