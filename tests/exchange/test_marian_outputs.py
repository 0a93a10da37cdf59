"""A model that Marian 1.12.42 trained translates as Marian did, by its own outputs."""

from pathlib import Path

import pytest

from nmt.config.settings import with_decode
from nmt.decode.translator import Translator
from nmt.exchange import importing
from nmt.modeldir import Trained

PLACE = Path(__file__).parent / "marian-1.12.42"


@pytest.fixture(scope="module")
def trained() -> Trained:
    return importing.read(PLACE, 60).trained


@pytest.mark.parametrize(("beam", "normalize"), [(1, 0), (12, 0), (4, 0.6)])
def test_lines_are_translated_as_marian_does(trained: Trained, beam: int, normalize: float) -> None:
    """Two translations of one of the first 140 lines differ by 1e-6 in their score."""
    lines = (PLACE / "lines.de").read_text(encoding="utf-8").split("\n")[:20]
    outputs = PLACE / f"beam{beam}-normalize{normalize:g}.en"
    expected = outputs.read_text(encoding="utf-8").split("\n")[:20]
    changes = {"beam_size": beam, "alpha": normalize}
    decode = with_decode(trained.settings, changes).decode
    by_nmt = Translator.of(trained, decode).texts(lines)
    assert sum(a == b for a, b in zip(by_nmt, expected, strict=True)) >= 19
