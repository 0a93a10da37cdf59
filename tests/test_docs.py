"""The Python of the pages runs in its order, and prints what stands below it."""

import contextlib
import doctest
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nmt
import nmt.api
from nmt.config.catalog import options_of
from nmt.errors import Exit
from tests.pages import PAGES, ROOT, blocks, examples, text_of
from tests.toy.toy_parser import translate

BRIEF = [  # a small model of short sentences, in a minute: those of the examples are easy
    *("data.train_longest=8", "data.test_longest=9", "optim=adam_inverse_sqrt", "optim.lr=2e-3"),
    *("optim.warmup=100", "trainer.max_epochs=null", "trainer.max_steps=300", "trainer.device=cpu"),
    *("trainer.batch_tokens=1600", "trainer.checkpoints_per_epoch=1", "trainer.tensorboard=false"),
]


def run_examples(page: str) -> None:
    """Run a page's examples one after the other; each must print what stands below it."""
    names: dict[str, Any] = {}
    for code, shown in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert printed.getvalue() == shown


@pytest.mark.parametrize(
    "page", [pytest.param("docs/python.md", marks=pytest.mark.slow), "docs/reading-the-code.md"]
)
def test_the_examples_run_and_print_what_they_show(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(page)


@pytest.mark.slow
def test_a_trained_model_translates_the_examples_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the docstrings of nmt.api, after a short `nmt-train encoding=relative`."""
    monkeypatch.chdir(tmp_path)
    nmt.train(nmt.compose(["encoding=relative", *BRIEF]))
    for function in (nmt.translate, nmt.score, nmt.align):
        for test in doctest.DocTestFinder().find(function, globs={"nmt": nmt}):
            assert doctest.DocTestRunner().run(test).failed == 0


def test_german_examples_are_sentences_of_the_embedded_grammar() -> None:
    """So that the first translation a reader makes can be right."""
    lines = [block for page in PAGES for block in blocks(page, "python")]
    lines += [example.source + example.want for example in documented(nmt.api)]
    sentences = set(re.findall(r'(?<!")"(\w[^"\n]* [^"\n]*\.)"(?!")', "\n".join(lines)))
    right = {sentence: translation_of(sentence) for sentence in sentences}
    german = {sentence for sentence, translation in right.items() if translation}
    assert len(german) > 1
    assert sentences - german <= set(right.values())  # their translations


def translation_of(sentence: str) -> str | None:
    """The right one; None for what is no sentence of the grammar."""
    try:
        return translate(sentence)
    except ValueError:
        return None


def documented(module: ModuleType) -> list[doctest.Example]:
    """The examples in the docstrings of a module."""
    return [e for test in doctest.DocTestFinder().find(module) for e in test.examples]


def test_every_function_has_an_example() -> None:
    code = "".join(code for code, _ in examples("docs/python.md"))
    functions = [name for name in nmt.__all__ if name.islower()]
    assert [name for name in functions if f"nmt.{name}(" not in code] == []


def test_packages_for_a_machine_without_a_network_are_all_but_torch() -> None:
    needed = tomllib.loads(text_of("pyproject.toml"))["project"]["dependencies"]
    names = {re.split(r"[<>=]", requirement)[0] for requirement in needed} - {"torch"}
    page = text_of("docs/speed.md").replace("\\\n", "")
    carried = re.findall(r"pip (?:wheel .*constraints\.txt|install .*wheels) ([^#\n]+)", page)
    assert [set(packages.split()) for packages in carried] == [names, names]


def test_every_encoding_can_be_exported_or_has_a_reason() -> None:
    section = text_of("docs/exchange.md").partition("### Which encodings can be exported")[2]
    can, _, cannot = section.partition("\n### ")[0].partition("The others are rejected")
    can = can.partition("were equal for:")[2]
    reasons = re.findall(r"^\| (`.+?) \|", cannot, re.M)
    named = re.findall(r"`(\w+)`", " ".join([can, *reasons]))
    assert sorted(named) == options_of("encoding")


def test_every_command_and_exit_code_is_in_its_table() -> None:
    scripts = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]
    page = text_of("docs/commands.md")
    assert set(re.findall(r"^\| `(nmt-\w+)` \|", page, re.M)) == set(scripts)
    table = page.partition("### Exit codes")[2].partition("\n## ")[0]
    codes = ", ".join(re.findall(r"^\| ([\d, ]+) \|", table, re.M)).split(", ")
    assert sorted(map(int, codes)) == sorted([1, *Exit])  # 1: a bug in nmt


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nmt-train" in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/encodings.md"])
def test_the_number_of_encodings_is_right(page: str) -> None:
    numbers = re.findall(r"(\d+)(?: encodings|; nmt-encodings)", text_of(page))
    assert set(numbers) == {str(len(options_of("encoding")))}
