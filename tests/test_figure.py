"""Which files pictures are written to."""

from pathlib import Path

import pytest

from nmt import figure
from nmt.errors import UserError


def test_plots_refuse_other_formats_and_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="must end in one of"):
        figure.check(tmp_path / "a.gif")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'nmt-toolkit\[report\]'"):
        figure.check(tmp_path / "a.png")
