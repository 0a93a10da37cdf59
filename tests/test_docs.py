"""The examples of docs/python.md run in their order, and print what stands below them."""

import contextlib
import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.errors import Exit
from tests.pages import PAGES, blocks, text_of

PAGE = "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", text_of(PAGE), re.S | re.M)


def test_the_examples_run_and_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code, shown in BLOCKS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, PAGE, "exec"), names)
        assert printed.getvalue() == shown


def test_every_function_has_an_example() -> None:
    code = "".join(code for code, _ in BLOCKS)
    functions = [name for name in nmt.__all__ if name.islower()]
    assert [name for name in functions if f"nmt.{name}(" not in code] == []


def test_no_page_uses_a_name_that_is_not_there() -> None:
    code = "".join(code for page in PAGES for code in blocks(page, "python"))
    assert set(re.findall(r"\bnmt\.([a-z_]+)\(", code)) <= set(nmt.__all__)


def test_every_exit_code_is_in_its_table() -> None:
    table = text_of("docs/commands.md").partition("### Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.M)
    assert {int(code) for row in rows for code in row.split(", ")} == set(Exit)


def test_every_command_is_in_the_table_of_commands() -> None:
    scripts = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]
    assert set(re.findall(r"^\| `(nmt-\w+)` \|", text_of("docs/commands.md"), re.M)) == set(scripts)
