"""A new encoding is the two files of its page in docs, and nothing else is changed for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import commands
from tests.plug_ins import PAGE, ROOT, files
from tests.test_readme_runs import run_in_shell

PARTS = (
    *("nmt", "conf", "tests", "docs", "scripts", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("CITATION.cff", "Makefile", "pyproject.toml"),
)
EVERY = (  # of what there is
    *("options_of(", "every_encoding(", "OPTIONS", "names()", "README", "FAMILIES", "FILES"),
)
EXPORTS = "test_every_encoding_can_be_exported_or_has_a_reason"  # by docs/exchange.md
NEW = ("mine", "fading")  # the encodings of the page, and the two files of each
FILES = (
    *("nmt/encodings/biases/mine.py", "conf/encoding/mine.yaml"),
    *("nmt/encodings/softmax/fading.py", "conf/encoding/fading.yaml"),
)
# The cases of the new ones, and the tests that take all encodings at once: no other can change.
# A test that is slow for all encodings is left out, but not one that is fast for representatives.
ONLY = f"""
import inspect

def chosen(item):
    if any(mark.name == "slow" for mark in getattr(item.function, "pytestmark", ())):
        return False
    if hasattr(item, "callspec"):
        return any(name in item.callspec.id for name in {NEW})
    return any(word in inspect.getsource(item.function) for word in {EVERY})

def pytest_collection_modifyitems(config, items):
    kept = list(filter(chosen, items))
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = kept
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this checkout with the files of the page."""
    unused = shutil.ignore_patterns("__pycache__", ".*_cache")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=unused)
        else:
            shutil.copy(ROOT / part, tmp_path / part)
    shown = files()
    assert tuple(shown) == FILES
    for path, text in shown.items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "only.py").write_text(ONLY, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(tree: Path) -> None:
    for command in commands(PAGE):
        run_in_shell(command, tree, tree)
    assert len(commands(PAGE)) == 4


@pytest.mark.slow
def test_the_tests_pass_with_two_encodings_more(tree: Path) -> None:
    about = [
        str(path.relative_to(tree))
        for path in sorted((tree / "tests").rglob("test_*.py"))
        if path.name != Path(__file__).name
        and any(word in path.read_text(encoding="utf-8") for word in EVERY)
    ]
    assert len(about) > 10
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-m", "slow or not slow", "-p", "only"),
            *("-vv", "--tb=short", *about),
            # who adds one raises this number, and says whether it can be exported
            *("--deselect", "tests/test_house.py::test_the_package_does_not_grow"),
            *("--deselect", f"tests/test_docs.py::{EXPORTS}"),
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    wanted = {
        "test_flipping_a_key_of_an_encoding_shows",
        "test_every_option_has_a_card",
        "test_every_search_waits_once_in_eight_steps",
        *("test_the_family_agrees_with_the_hooks", "test_an_encoding_does_all_that_it_must"),
    }
    for name in NEW:
        cases = {
            line.partition("[")[0].rpartition("::")[2]
            for line in done.stdout.split("\n")
            if name in line
        }
        assert wanted <= cases, name
