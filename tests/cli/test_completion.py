"""Tab completes groups, options and keys: what bash asks the console script, and gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.cli import train

ROOT = Path(__file__).parent.parent.parent
SCRIPT = f"#!{sys.executable}\nimport sys\nfrom nmt.cli.train import main\nsys.exit(main())\n"
ASK = """
eval "$(nmt-train -sc install=bash)"
complete -p nmt-train > /dev/null || exit 9
for line in "$@"; do
    COMP_LINE="$line" COMP_POINT=${#line} COMP_WORDS=($line)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    hydra_bash_completion
    echo "${COMPREPLY[@]}"
done
"""
OFFERED = {  # line -> what Tab behind it offers
    "nmt-train optim=adam_i": ["optim=adam_inverse_sqrt"],
    "nmt-train encoding=relative ta": ["tau="],
}


@pytest.mark.parametrize("line", OFFERED)
def test_the_command_answers_what_a_shell_asks(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert train.main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == OFFERED[line]


@pytest.mark.slow
def test_tab_completes_in_bash(tmp_path: Path) -> None:
    """One bash is asked for all lines, as the script that it reads takes as long as an answer."""
    command = tmp_path / "nmt-train"
    command.write_text(SCRIPT, encoding="utf-8")
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", *OFFERED],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert not ended.stderr
    answers = [line.split() for line in ended.stdout.decode().split("\n")[:-1]]
    assert answers == list(OFFERED.values())
