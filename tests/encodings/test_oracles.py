"""Encodings agree with packages by other people (extra: oracles)."""

import pytest

from tests.encodings.agreement import Agreement
from tests.encodings.oracles import AGREEMENTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "a", AGREEMENTS, ids=lambda a: f"{a.encoding}, {a.package}, {a.what}".replace(" ", "_")
)
def test_agrees(a: Agreement) -> None:
    if a.version is None:
        pytest.skip(f"needs {a.package}: pip install 'nmt-toolkit[oracles]'")
    difference, _ = a.compare()
    assert difference <= a.bound
