"""Of many cases of one kind, a few are fast; `make slow` tries the others, too."""

from collections.abc import Iterable
from typing import Any

import pytest


def fast_first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters: the first `count` cases as they are, the others marked as slow."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] * (number >= count),
        )
        for number, case in enumerate(cases)
    ]
