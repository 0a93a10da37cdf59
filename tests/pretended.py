"""Directories that pass for a model that a test has in memory, for commands that evaluate."""

from pathlib import Path

import pytest

from nmt import modeldir
from nmt.evaluation import run, systems, translations
from nmt.evaluation.systems import ModelFacts
from nmt.modeldir import Trained


def pretend(patch: pytest.MonkeyPatch, trained: Trained) -> list[str]:
    """Let every directory hold this model; returns the paths that are loaded from now on."""
    loaded: list[str] = []

    def load(path: str | Path, device: str = "cpu") -> Trained:
        loaded.append(str(path))
        return trained

    segmenter, columns = trained.source.segmenter, frozenset(trained.model.columns)
    if not hasattr(segmenter, "to_json"):
        patch.setattr(type(segmenter), "to_json", lambda self: {"kind": "spaces"}, raising=False)
    known = ModelFacts(1, 0, trained.facts["longest_source"], segmenter, columns, None, segmenter)
    patch.setattr(modeldir, "load", load)
    patch.setattr(modeldir, "read_settings", lambda path: trained.settings)
    patch.setattr(modeldir, "read_sides", lambda path: (trained.source, trained.target))
    for module in (systems, run):
        patch.setattr(module, "facts_at", lambda path: known)
    patch.setattr(translations, "digest_of", str)
    return loaded
