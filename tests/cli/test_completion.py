"""Tab completes groups, options and keys: what Hydra's script for bash asks, and gets."""

import pytest

from nmt.cli import train

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
