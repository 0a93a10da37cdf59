"""Encodings and positions of after 2023, from a package of somebody else's, by every command."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.testing import check_encoding
from tests.fast import fast_first
from tests.plug_ins import ROOT, install

PLACE = ROOT / "tests" / "outside"
BESIDE = ["--config-dir", str(PLACE)]
CLASSES = {"forgetting": "Forgetting", "slower_turns": "SlowerTurns"}
POSITIONS = {"bilevel": "Bilevel"}
COMPLEX = "encoding=[bilevel,complex_order]"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution of all modules, as pip lays it down."""
    site = tmp_path / "site"
    for group, classes in {"nmt.encodings": CLASSES, "nmt.positions": POSITIONS}.items():
        for name, of in classes.items():
            source = (PLACE / f"{name}.py").read_text(encoding="utf-8")
            install(site, "nmt-outside", name, f"outside_{name}:{of}", source, group)
    monkeypatch.syspath_prepend(site)
    yield
    for name in (*CLASSES, *POSITIONS):
        sys.modules.pop(f"outside_{name}", None)


@pytest.mark.parametrize(
    "words", fast_first(1, [["forgetting"], ["bilevel"], ["slower_turns"], ["bilevel", COMPLEX]])
)
def test_passes_all_checks(words: list[str]) -> None:
    check_encoding(*words, config_dir=PLACE, tokens=12, precisions=["float32"])
