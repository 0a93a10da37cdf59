"""The tiny corpus and one run on it that nobody stopped."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.data.prepare import Prepared
from tests.training import tiny


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Without this, nine tenths of the time goes into fsync; its order has its own test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return tiny.prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def whole(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; look, do not touch."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    tiny.train(run, data)
    return run
