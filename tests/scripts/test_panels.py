"""Pictures of encodings, made of what they do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt import build
from scripts.panels import CurvesPanel, MatrixPanel, Panel, panels_of
from scripts.pictures import main
from tests.composing import settings_of

SMALL = ("model=tiny", "model.dim=32", "model.feedforward_dim=32", "model.heads=4")


def panels(option: str, **keys: list[int]) -> list[Panel]:
    """`keys`: of all its entries."""
    settings = settings_of(f"encoding={option}")
    restricted = {name: {**entry, **keys} for name, entry in settings.encoding.items()}
    settings = replace(settings, encoding=restricted)
    size = replace(settings.model, dim=32, feedforward_dim=32, heads=4)
    settings = replace(settings, model=size)
    torch.manual_seed(0)
    model = build.transformer(settings, 40, 40).eval()
    return [p for e in model.entries for p in panels_of(e, 40)]


@pytest.mark.parametrize("option", ["relative", "rotary", "stick_breaking", "graformer"])
def test_each_kind_of_encoding_has_something_to_show(option: str) -> None:
    drawn = panels(option)
    assert drawn
    for panel in drawn:
        values = [panel.values] if isinstance(panel, MatrixPanel) else [c for _, c in panel.curves]
        assert values and all(np.isfinite(v).any() and not np.isinf(v).any() for v in values)


def test_sinusoids_are_alike_by_distance() -> None:
    vectors, alike, curve = panels("absolute")[:3]
    assert (
        isinstance(vectors, MatrixPanel)
        and isinstance(alike, MatrixPanel)
        and isinstance(curve, CurvesPanel)
    )
    np.testing.assert_allclose(vectors.values[3, :2], [np.sin(3), np.cos(3)], atol=1e-6)
    w = 10000.0 ** (-2 * np.arange(16) / 32)
    expected = [np.cos(d * w).mean() for d in curve.distances]
    np.testing.assert_allclose(curve.curves[0][1], expected, atol=1e-6)


def test_files_are_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "picture.png"
    assert main(["alibi", str(path), *SMALL]) == 0
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 5000
