"""The README's commands are words that the commands understand."""

import re
import shlex
from pathlib import Path

import pytest

from nmt.cli.compare import understood as compare_words
from nmt.cli.encodings import command as encodings
from nmt.cli.evaluate import understood as evaluate_words
from nmt.cli.parity import understood as parity_words
from nmt.cli.report import understood as report_words
from nmt.cli.testset import understood as words_of_testset
from nmt.cli.translate import understood as translate_words
from nmt.overrides.compose import experiment_of, sweep_of
from nmt.overrides.options import FAMILIES, family_of

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """The lines of the shell blocks, joined and split as a shell would, without redirections."""
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").split("\n")
    found = [shlex.split(re.sub(r"[<>] *\S+", "", line), comments=True) for line in lines]
    return [words for words in found if words]


COMMANDS = commands()


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(c)[:60] for c in COMMANDS])
def test_each_command_is_understood(words: list[str], tmp_path: Path) -> None:
    name, rest = words[0], words[1:]
    if name == "nmt-evaluate":
        evaluate_words([w.replace("bleu.png", str(tmp_path / "bleu.png")) for w in rest])
    elif name == "nmt-translate":
        assert translate_words(rest).model
    elif name == "nmt-encodings":
        if rest != ["--table"]:  # which tests/cli/test_survey.py makes; it takes a while
            encodings([w.replace("alibi.png", str(tmp_path / "alibi.png")) for w in rest])
    elif name == "nmt-parity":
        parity_words(rest)
    elif name == "nmt-report":
        assert report_words(rest).words
    elif name == "nmt-testset":
        assert words_of_testset(rest).name
    elif name == "nmt-compare":
        assert compare_words(rest).words
    elif name in ("nmt-train", "nmt-prepare"):
        if rest[0] == "-m":  # a sweep: its first job
            rest = [re.sub(r"=([^,\[]+),.*", r"=\1", w) for w in rest[1:]]
        table = sweep_of(rest)
        experiment_of(table.jobs[0] if table else rest)
    else:
        targets = re.findall(r"^([a-z0-9-]+):.*##", Path("Makefile").read_text(), flags=re.M)
        assert name == "make" and rest[0] in targets


def test_there_are_commands_to_check() -> None:
    assert {"make", "nmt-train", "nmt-translate", "nmt-evaluate"} <= {c[0] for c in COMMANDS}


def test_the_table_of_families_says_what_the_files_say() -> None:
    """It may lack an encoding, which nmt-encodings lists; what it says must be true."""
    table = README.partition("| family | `encoding=` |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| (`.*`) \|$", table, flags=re.M)
    assert [family for family, _ in rows] == list(FAMILIES)
    stated = {option: family for family, row in rows for option in re.findall(r"`(\w+)`", row)}
    assert stated == {option: family_of(option) for option in stated}
    assert len(stated) > 60


def test_pictures_and_files_exist() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
