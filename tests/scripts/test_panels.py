"""Pictures of encodings, made of what they do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt import build, modeldir
from nmt.config.compose import experiment_of
from scripts.panels import CurvesPanel, MatrixPanel, Panel, panels_of
from scripts.pictures import main
from tests.composing import every_encoding, settings_of

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


@pytest.mark.parametrize("option", every_encoding())
def test_every_encoding_has_something_to_show(option: str) -> None:
    drawn = panels(option)
    assert drawn
    for panel in drawn:
        values = [panel.values] if isinstance(panel, MatrixPanel) else [c for _, c in panel.curves]
        assert values and all(np.isfinite(v).any() and not np.isinf(v).any() for v in values)


def test_the_penalty_of_each_head() -> None:
    panel = panels("alibi")[0]
    assert isinstance(panel, CurvesPanel) and len(panel.curves) == 4
    for h, (name, curve) in enumerate(panel.curves, start=1):
        assert name == f"head {h}"
        np.testing.assert_allclose(curve, -(2.0 ** (-8 * h / 4)) * abs(panel.distances), atol=1e-5)


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


def test_equal_words_under_rotation() -> None:
    """The mean over directions is a sum of cosines; at distance 0 it is sqrt(head_dim)."""
    panel = next(p for p in panels("rotary") if "equal key" in p.title)
    assert isinstance(panel, CurvesPanel)
    ((name, curve),) = panel.curves
    assert name == "all heads"
    assert curve[panel.distances == 0] == pytest.approx(8**0.5, abs=1e-5)
    assert curve.max() == curve[panel.distances == 0]


def test_no_positions_are_a_flat_line() -> None:
    panel = panels("none")[0]
    assert isinstance(panel, CurvesPanel)
    assert np.ptp(panel.curves[0][1]) < 1e-5


def test_vectors_on_values_are_clipped() -> None:
    panel = next(p for p in panels("relative") if "values" in p.title)
    assert isinstance(panel, CurvesPanel)
    curve = panel.curves[0][1]
    assert np.ptp(curve[panel.distances >= 16]) < 1e-5 < np.ptp(curve[abs(panel.distances) < 16])


@pytest.mark.parametrize("option", ["rotary", "stick_breaking", "gaussian"])
def test_a_part_of_the_model_is_drawn_as_all_of_it(option: str) -> None:
    """Of encodings that learn nothing."""
    plain = panels(option)
    for panel, whole in zip(panels(option, layers=[1]), plain, strict=True):
        assert panel.title == whole.title
        assert isinstance(panel, CurvesPanel) and isinstance(whole, CurvesPanel)
        for (_, curve), (_, other) in zip(panel.curves, whole.curves, strict=True):
            np.testing.assert_allclose(curve, other, atol=1e-6)


def test_weights_are_those_of_the_layer_that_is_served() -> None:
    panel = panels("stick_breaking", layers=[1])[-1]
    assert isinstance(panel, CurvesPanel)
    (name, softmax), (other, own) = panel.curves
    assert (name, other) == ("softmax", "stick_breaking")
    assert not np.allclose(softmax, own, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("option", ["relative_absolute", "none"])
def test_files_are_written(option: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"{option}.png"
    assert main([option, str(path), *SMALL]) == 0
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 5000


@pytest.mark.slow
def test_a_run_shows_what_it_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables and their vectors, not those of a random start; another encoding is refused."""
    settings = experiment_of(["encoding=relative", *SMALL]).settings
    model = build.transformer(settings, 40, 40).eval()
    trained = modeldir.Trained(settings, model, _Side(), _Side(), {"step": 7})  # type: ignore[arg-type]
    monkeypatch.setattr(modeldir, "load", lambda path: trained)

    def drawn(*arguments: str) -> str:
        assert main(["relative", str(tmp_path / "a.svg"), *arguments]) == 0
        return (tmp_path / "a.svg").read_text(encoding="utf-8")

    first = drawn("--run", "runs/x")
    for row in ("encoder", "decoder"):
        for role in ("keys", "values"):
            assert f"relative: {row}, similarity of learned vectors ({role})" in first
    assert "similarity of learned" not in drawn(*SMALL)
    assert drawn("--run", "runs/x") == first
    with torch.no_grad():
        for p in model.encoder_encodings.parameters():
            p.mul_(3)
    assert drawn("--run", "runs/x") != first
    assert main(["rotary", str(tmp_path / "a.svg"), "--run", "runs/x"]) == 2


class _Side:
    vocabulary = range(40)
