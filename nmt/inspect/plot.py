"""An encoding as a picture: a row of panels for each of its entries."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt import build, modeldir
from nmt.config import Settings
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.figure import undated
from nmt.inspect.panels import Heat, Lines, Panel, panels_of
from nmt.inspect.specimen import entries
from nmt.model.transformer import Transformer
from nmt.overrides.options import Folders, entries_of

VOCAB = 64
PANEL = (4.0, 3.3)  # inches
SIGNED, PLAIN = "RdBu_r", "cividis"  # both told apart with any colour vision
HEADS = "viridis"
FLAT = 1e-5
LEGEND = 8  # heads that a legend names, at most


def draw(settings: Settings, option: str, path: Path) -> None:
    """Draw an encoding as it is initialised; the file's name decides its format."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build.transformer(settings, VOCAB, VOCAB)
    learnt = any(True for site in model.sites.values() for _ in site.parameters())
    state = "at its random start, not trained" if learnt else "nothing is learnt"
    _picture(model.eval(), list(settings.encoding), option, state, VOCAB, path)


def draw_run(run: Path, option: str | None, path: Path, folders: Folders = ()) -> None:
    """Draw what a run has learnt; `option`: only these of its entries.

    Raises UserError if the run has another encoding.
    """
    trained = modeldir.load(run)
    names = list(trained.settings.encoding)
    wanted = names if option is None else list(entries_of(option, folders))
    if missing := [name for name in wanted if name not in names]:
        raise UserError(
            f"{run}: trained with {', '.join(names) or 'no encoding'}, not with {missing[0]}"
        )
    step = trained.facts.get("step")
    state = f"trained: {run.name}" + (f", step {step:,}" if isinstance(step, int) else "")
    label = option or "+".join(names)
    vocab = min(len(trained.source.vocabulary), len(trained.target.vocabulary))
    _picture(trained.model, wanted, label, state, vocab, path)


def _picture(
    model: Transformer, names: list[str], label: str, state: str, vocab: int, path: Path
) -> None:
    """Each entry where it is used first: in the encoder, the decoder or between them."""
    rows: list[tuple[str, list[Panel]]] = []
    for name in names:
        found = next(((s, e) for s, e in entries(model) if e.name == name), None)
        if found is not None and (panels := panels_of(found[1], found[0], vocab)):
            rows.append((_heading(*found), panels))
    if not rows:
        raise UserError(f"{label}: nothing of it can be drawn")
    _save(rows, f"{label} ({state})", path)


def _heading(site: str, e: Encoding) -> str:
    d = e.dims
    layer = f", layer 1 of {d.layers}" if d.layers > 1 else ""
    return f"{e.name}: {site}{layer}, {d.heads} heads of {d.head_dim} dimensions"


def _save(rows: list[tuple[str, list[Panel]]], title: str, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    wide = max(len(panels) for _, panels in rows)
    size = (max(PANEL[0] * wide, 5.0), PANEL[1] * len(rows) + 0.6)
    with matplotlib.rc_context({"svg.hashsalt": "nmt", "font.size": 9}):
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
        figure.suptitle(title, fontsize=11, x=0.01, ha="left", fontweight="bold")
        bands = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for band, (heading, panels) in zip(bands, rows, strict=True):
            band.suptitle(heading, fontsize=9, x=0.01, ha="left")
            grid = band.subplots(1, wide, squeeze=False)[0]
            for axes, panel in zip(grid, panels, strict=False):
                axes.set_title(panel.title, fontsize=9)
                axes.set_xlabel(panel.across)
                if isinstance(panel, Heat):
                    _heat(band, axes, panel)
                else:
                    _lines(axes, panel)
            for axes in grid[len(panels) :]:
                axes.set_axis_off()
        figure.savefig(path, dpi=150, metadata=undated(path))


def _heat(figure: Any, axes: Any, panel: Heat) -> None:
    most = float(np.nanmax(np.abs(panel.values))) or 1.0
    limits = {"cmap": SIGNED, "vmin": -most, "vmax": most} if panel.signed else {"cmap": PLAIN}
    image = axes.imshow(panel.values, aspect="auto", interpolation="nearest", **limits)
    axes.set_ylabel(panel.down)
    figure.colorbar(image, ax=axes, label=panel.colour)


def _lines(axes: Any, panel: Lines) -> None:
    import matplotlib

    shades = matplotlib.colormaps[HEADS](np.linspace(0, 0.9, len(panel.curves)))
    named = len(panel.curves) <= LEGEND
    for (name, curve), shade in zip(panel.curves, shades, strict=True):
        label = name if named and name else None
        colour = shade if len(panel.curves) > 1 else "#0072B2"
        alone = int(np.isfinite(curve).sum()) == 1
        axes.plot(
            panel.distances,
            curve,
            color=colour,
            linewidth=1.3,
            label=label,
            marker="o" if alone else "",
        )
    axes.set_ylabel(panel.up)
    if panel.logarithmic:
        axes.set_yscale("log")
    values = np.concatenate([curve for _, curve in panel.curves])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if not panel.logarithmic and low >= 0:
        axes.set_ylim(0, 1.08 * high or 1.0)
    elif high - low < FLAT:  # a flat line, not the noise of rounding
        axes.set_ylim(low - 1, high + 1)
    axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if named and any(name for name, _ in panel.curves):
        columns = 2 if len(panel.curves) > 4 else 1
        axes.legend(fontsize=7, ncols=columns, frameon=True, framealpha=0.8, edgecolor="none")
