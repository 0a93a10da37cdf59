"""A new encoding is the two files of its page in docs, and nothing else is changed for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plug_ins import ROOT, example

PARTS = ("nmt", "conf", "tests", "docs", "scripts", "README.md", "Makefile", "pyproject.toml")
EVERY = (  # of what there is
    *("options_of(", "one_of_each_class(", "OPTIONS", "names()", "README", "FAMILIES", "FILES"),
)
BASE = """

class Base(Encoding):
    \"""What others may share; it stands for nothing itself.\"""


class Mine(Base):"""
# The cases of the new one, and the tests that take all encodings at once: no other can change.
ONLY = f"""
import inspect

def chosen(item):
    if hasattr(item, "callspec"):
        return "mine" in item.callspec.id
    return any(word in inspect.getsource(item.function) for word in {EVERY})

def pytest_collection_modifyitems(config, items):
    kept = list(filter(chosen, items))
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = kept
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this checkout with the files of the example; its class has a base beside it."""
    unused = shutil.ignore_patterns("__pycache__", ".*_cache")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=unused)
        else:
            shutil.copy(ROOT / part, tmp_path / part)
    module, yaml = example()
    module = module.replace("\n\nclass Mine(Encoding):", BASE)
    assert "class Base" in module
    (tmp_path / "nmt" / "encodings" / "mine.py").write_text(module, encoding="utf-8")
    (tmp_path / "conf" / "encoding" / "mine.yaml").write_text(yaml, encoding="utf-8")
    (tmp_path / "only.py").write_text(ONLY, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_tests_pass_with_one_encoding_more(tree: Path) -> None:
    about = [
        str(path.relative_to(tree))
        for path in sorted((tree / "tests").rglob("test_*.py"))
        if path.name != Path(__file__).name
        and any(word in path.read_text(encoding="utf-8") for word in EVERY)
    ]
    assert len(about) > 10
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "only", "-vv", "--tb=short", *about],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    cases = {
        line.partition("[")[0].rpartition("::")[2]
        for line in done.stdout.split("\n")
        if "mine" in line
    }
    wanted = {
        *("test_gradients_reach_each_parameter", "test_flipping_a_key_of_an_encoding_shows"),
        *("test_every_option_has_a_card", "test_every_encoding_has_something_to_show"),
        "test_the_family_agrees_with_what_runs",
    }
    assert wanted <= cases
