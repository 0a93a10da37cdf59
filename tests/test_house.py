"""Who imports whom, how long files are, and what must not be written anywhere."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import TOGETHER
from tests.pages import ROOT, rooms

FILES = sorted((ROOT / "nmt").rglob("*.py")) + sorted((ROOT / "scripts").rglob("*.py"))
ROOMS = rooms()  # room -> rooms that it may import, as docs/architecture.md says
BASE = {"config", "errors", "figure"}
SWEEP = {"sweep", "tables", "lengthen"}  # files of one room


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text_of(path))))


@cache
def statements_of(path: Path) -> list[ast.AST]:
    """All statements and handlers, inner ones too, without expressions: few of all nodes."""
    found: list[ast.AST] = []
    left: list[ast.AST] = [ast.parse(text_of(path))]
    while left:
        node = left.pop()
        found.append(node)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, None)
            left += inner if isinstance(inner, list) else []
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    parts = module.split(".")
    if module in ("nmt", "nmt.testing"):
        return "api"
    if parts[0] == "scripts":
        return "scripts"
    if len(parts) == 1 or parts[1] in BASE:
        return "base"
    if parts[1] in SWEEP:
        return "sweep"
    return parts[1] if parts[1] in ROOMS else "top"


MODULES = {module_of(path) for path in FILES}


@cache
def imports_of(path: Path) -> set[str]:
    """Modules of the house that a file imports, at the top or inside a function."""
    found: set[str] = set()
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{a.name}" for a in node.names}
            found |= (inner & MODULES) or {node.module}
    return {m for m in found if m.split(".")[0] in ("nmt", "scripts")}


def test_imports_run_downhill() -> None:
    wrong = []
    for path in FILES:
        here = room_of(module_of(path))
        for module in imports_of(path):
            there = room_of(module)
            if not (there == here or there in ROOMS[here] or module == "nmt"):
                wrong.append(f"{module_of(path)} -> {module}")
    assert not wrong


def test_no_circles() -> None:
    graph = {module_of(f): imports_of(f) - {"nmt"} for f in FILES}  # which imports when asked
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for other in graph.get(module, set()):
            if other in graph:
                visit(other, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_files_can_be_read_in_one_sitting() -> None:
    for path in FILES:
        short = path.parent.parent.name == "encodings"  # one encoding
        assert text_of(path).count("\n") <= (150 if short else 400), module_of(path)


LINES = 31232


def test_the_package_does_not_grow() -> None:
    package = [path for path in FILES if path.is_relative_to(ROOT / "nmt")]
    assert sum(text_of(path).count("\n") for path in package) <= LINES


def test_one_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        if path.is_relative_to(ROOT / "nmt"):
            for node in statements_of(path):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(module_of(path))
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


FORBIDDEN = {
    r"\.splitlines\(": "splits on nine characters besides LF",
    r"(?<!safetensors\.)torch\.load\((?!.*weights_only=True)": "runs code from a file",
    r"import pickle|\bmarshal\b": "the same",
    r"codecs\.open\(|for \w+ in sys\.stdin\b": "splits lines where there are none",
    r"\b_target_\b": "a config that names code",
    r"time\.time\(\)": "a clock that jumps",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_nothing_dangerous_is_written(pattern: str) -> None:
    wrong = [module_of(path) for path in FILES if re.search(pattern, text_of(path))]
    assert not wrong, f"{pattern}: {FORBIDDEN[pattern]}"


def test_no_test_fulfils_itself() -> None:
    """It would: by raising what it waits for, by passing over an error, by asserting a constant.

    Raising is meant where something else stands between: `with pytest.raises(...), ours(): raise`.
    """
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    assert not [
        f"{path.name}:{getattr(node, 'lineno', 0)}"
        for path in tests
        for node in statements_of(path)
        if (isinstance(node, ast.With) and _awaits_alone(node) and _raises(node))
        or (isinstance(node, ast.ExceptHandler) and isinstance(node.body[0], ast.Pass))
        or (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))
    ]
    assert not [path.name for path in tests if re.search(r"suppress *\(", text_of(path))]


def _awaits_alone(node: ast.With) -> bool:
    names = [ast.unparse(item.context_expr).partition("(")[0] for item in node.items]
    return names == ["pytest.raises"]


def _raises(node: ast.With) -> bool:
    return any(isinstance(inner, ast.Raise) for inner in ast.walk(node))


def test_files_of_tests_have_names_of_their_own() -> None:
    """Else pytest cannot import both. Those that stay together in one process are there."""
    stems = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(stems) == len({*stems})
    assert {*TOGETHER} <= {*stems}


def test_only_its_own_files_know_an_encoding_by_name() -> None:
    names = {p.stem for p in (ROOT / "conf" / "encoding").glob("*.yaml")} - {"none", "relative"}
    for path in FILES:
        if {"encodings", "data"} & {*path.parts[:-1]} or path.stem in ("train", "demo"):
            continue  # examples in nmt-train --help name some
        if not any(f'"{name}"' in text_of(path) or f"'{name}'" in text_of(path) for name in names):
            continue  # no constant can be one
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names, f"{module_of(path)} knows {node.value}"


def test_every_command_also_runs_as_a_module() -> None:
    scripts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["scripts"]
    modules = [target.removesuffix(":main").replace(".", "/") for target in scripts.values()]
    assert modules
    guard = 'if __name__ == "__main__":\n    sys.exit(main())\n'
    assert [m for m in modules if not text_of(ROOT / f"{m}.py").endswith(guard)] == []
