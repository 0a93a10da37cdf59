"""What the pages say is true: commands are understood, links lead somewhere, families agree."""

import re
import shlex
from pathlib import Path

import pytest

from nmt.cli import (
    average,
    diagnose,
    encodings,
    evaluate,
    export_model,
    import_model,
    score,
    train,
    translate,
)
from nmt.cli.help import parse_overrides
from nmt.config.catalog import FAMILIES, family_of, options_of
from nmt.config.hydra_conf import parse, sweep_of
from nmt.parent import compose_config
from scripts.bench import __main__ as bench
from tests.composing import settings_of
from tests.pages import PAGES, ROOT, commands, targets_of_make, text_of
from tests.plug_ins import PAGE as ADDING
from tests.test_parent import run_of

UNDERSTOOD = {  # command -> what reads its arguments and refuses those that do not fit
    "nmt-evaluate": evaluate.parse_arguments,
    "nmt-translate": translate.parse_arguments,
    "nmt-score": score.parse_arguments,
    "nmt-diagnose": diagnose.parse_arguments,
    "nmt-average": average.parse_arguments,
    "nmt-import": import_model.parse_arguments,
    "nmt-export": export_model.parse_arguments,
    "scripts.bench": bench.parse_arguments,
}
COMMANDS = list(  # those of ADDING need the files that it shows: tests/test_adding_one.py
    dict.fromkeys(command for page in PAGES if page != ADDING for command in commands(page))
)


def new_commands() -> list[str]:
    """The commands, but for trainings that only combine what earlier ones choose."""
    seen: set[str] = set()
    commands = []
    for command in COMMANDS:
        name, *words = shlex.split(command)
        chosen = {word for word in words if not word.startswith(("name=", "runs=", "seed="))}
        if name != "nmt-train" or chosen - seen:
            commands.append(command)
        seen |= chosen
    return commands


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, marks=() if c in commands("README.md") else pytest.mark.slow)
        for c in new_commands()
    ],
)
def test_each_command_is_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redirected = re.sub(r"[<>] *\S+", "", command)
    name, *arguments = shlex.split(redirected.removeprefix("python -m "))
    arguments = [re.sub(r"\b(\w+\.png)", rf"{tmp_path}/\1", a) for a in arguments]
    if name in UNDERSTOOD:
        monkeypatch.chdir(tmp_path)  # where outputs may be tried, by one test at a time
        UNDERSTOOD[name](arguments)
    elif name == "nmt-encodings":
        options = encodings.parse_arguments(arguments)  # other tests draw and check
        if options.names:
            compose_config(parse([f"encoding={options.names[0]}", *options.overrides]))
    elif name in ("nmt-train", "nmt-prepare"):
        if start := re.search(r"(?:init_from|parent)=(\S+)", command):
            monkeypatch.chdir(tmp_path)
            run_of(tmp_path / start[1], settings_of())
        options = train.parse_arguments(arguments)
        overrides = parse_overrides(options)
        sweep = sweep_of(overrides, options.multirun)
        compose_config(overrides if sweep is None else sweep.jobs[0])
    elif name == ".":
        assert arguments == [".venv/bin/activate"]
    elif name == "pip":  # tests/test_docs.py compares the packages with pyproject.toml
        assert arguments[0] in ("wheel", "install")
    elif name == "hf":  # of Hugging Face
        assert arguments[0] == "download"
    elif name == "eval":
        assert arguments == ["$(nmt-train -sc install=bash)"]  # tests of completion type Tab
    else:
        assert name == "make" and arguments[0] in targets_of_make()
        for passed_on in arguments[1:]:
            assert passed_on.startswith("BENCH=")
            bench.parse_arguments(shlex.split(passed_on.removeprefix("BENCH=")))


def test_the_readme_is_one_screen() -> None:
    assert text_of("README.md").count("\n") <= 80


def test_the_survey_s_table_names_encodings_that_are_there() -> None:
    """It lacks later ones and variants."""
    table = text_of("docs/encodings.md").partition("## The survey's Table 1\n")[2]
    rows = re.findall(r"^\| [^|]*\| `(\w+)[^|]*` \|", table, flags=re.M)
    assert set(rows) <= set(options_of("encoding")) and len(set(rows)) > 50


def test_the_table_of_families_says_what_the_files_say() -> None:
    """It may lack an encoding, which nmt-encodings lists; what it says must be true."""
    table = text_of("docs/encodings.md").partition("| family | `encoding=` |\n|---|---|\n")[2]
    rows = re.findall(r"^\| ([^|]+) \| (`.*`) \|$", table.partition("\n\n")[0], flags=re.M)
    assert [family for family, _ in rows] == list(FAMILIES)
    stated = {option: family for family, row in rows for option in re.findall(r"`(\w+)`", row)}
    assert stated == {option: family_of(option) for option in stated}
    assert len(stated) > 60


def anchors(page: Path) -> set[str]:
    """What links to a page's headings end in."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        place = (ROOT / page).parent / path if path else ROOT / page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_is_linked_from_the_readme_or_a_page_that_it_links() -> None:
    reached, new = {"README.md"}, ["README.md"]
    while new:
        page = new.pop()
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\(([\w./-]+\.md)", text_of(page)):
            found = str((folder / target).resolve().relative_to(ROOT.resolve()))
            if found in PAGES and found not in reached:
                reached.add(found)
                new.append(found)
    assert {*PAGES} - {"docs/index.md"} <= reached  # which is README.md as a page of the site
