"""Tab completes groups, options and keys: what bash asks the console script, and gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = f"#!{sys.executable}\nimport sys\nfrom nmt.cli.train import main\nsys.exit(main())\n"
ASK = """
eval "$(nmt-train -sc install=bash)"
complete -p nmt-train > /dev/null || exit 9
COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str, where: Path) -> list[str]:
    """What bash offers when Tab is pressed behind a line."""
    command = where / "nmt-train"
    command.write_text(SCRIPT, encoding="utf-8")
    command.chmod(0o755)
    path = f"{where}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", line],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        cwd=where,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert not ended.stderr
    return ended.stdout.decode().split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("nmt-train optim=adam_i", ["optim=adam_inverse_sqrt"]),
        ("nmt-train encoding=relative ta", ["tau="]),
        ("nmt-train trainer.th", ["trainer.threads="]),
    ],
)
def test_tab_completes(line: str, offered: list[str], tmp_path: Path) -> None:
    assert completed(line, tmp_path) == offered


def test_tab_lists_all_that_begin_so(tmp_path: Path) -> None:
    offered = completed("nmt-train encoding=rotary", tmp_path)
    assert offered == ["encoding=rotary", "encoding=rotary_partial"]
