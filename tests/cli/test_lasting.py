"""Imports of what stays, without garbage collection."""

import gc

import pytest

from nmt.cli.command import gc_paused


def test_what_was_imported_is_never_looked_through() -> None:
    before = gc.get_freeze_count()
    try:
        with gc_paused():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_garbage_is_collected_again_after_an_error() -> None:
    try:
        with pytest.raises(ImportError), gc_paused():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
