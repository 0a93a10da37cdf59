"""The tiny corpus and one run on it that nobody stopped."""

from pathlib import Path

import pytest

from nmt.corpus.prepare import Prepared
from tests.training import tiny


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return tiny.prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def whole(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; look, do not touch."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    tiny.train(run, data)
    return run
