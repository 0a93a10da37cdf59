"""Draw an encoding: python -m scripts.pictures NAME FILE [--run DIR] [KEY=VALUE ...].

Its hooks, asked about a synthetic sentence, decide which panels there are. With --run the picture
shows what a run has learned.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt import build, modeldir
from nmt.cli.command import run
from nmt.cli.options import Parser
from nmt.config.catalog import entries_of
from nmt.config.compose import experiment_of
from nmt.errors import UserError
from nmt.figure import draw_figure, require_matplotlib
from nmt.model.transformer import Transformer
from scripts.panels import CurvesPanel, MatrixPanel, Panel, first_layer, panels_of

VOCAB = 64
PANEL, WIDTH = (4.0, 3.3), 18.0  # inches; beyond the width panels get narrower
SIGNED, PLAIN = "RdBu_r", "cividis"  # both told apart with any colour vision
HEADS, ALONE = "viridis", "#0072B2"
LEGEND = 8  # heads that a legend names, at most
FLAT = 1e-5  # curves of a smaller range are the noise of rounding


def command(argv: list[str]) -> None:
    parser = Parser(prog="python -m scripts.pictures")
    parser.add_argument("name", metavar="NAME", help="an option of encoding=")
    parser.add_argument("path", type=Path, metavar="FILE", help="picture: .png, .svg or .pdf")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run that was trained with it")
    options = parser.parse_intermixed_args(argv)
    require_matplotlib(str(options.path))
    options.path.parent.mkdir(parents=True, exist_ok=True)
    if options.run:
        state, rows = show_run(options.run, options.name)
    else:
        state, rows = show_start([f"encoding={options.name}", *options.overrides])
    if not rows:
        raise UserError(f"{options.name}: nothing of it can be drawn")
    save(rows, f"{options.name} ({state})", options.path)


def show_start(overrides: list[str]) -> tuple[str, dict[str, list[Panel]]]:
    settings = experiment_of(overrides).settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build.transformer(settings, VOCAB, VOCAB).eval()
    learns = any(True for site in model.sites.values() for _ in site.parameters())
    state = "at its random start, not trained" if learns else "nothing is learned"
    return state, rows_of(model, list(settings.encoding), VOCAB)


def show_run(run: Path, option: str) -> tuple[str, dict[str, list[Panel]]]:
    """What a run has learned, of the entries of an option; UserError if it has another encoding."""
    trained = modeldir.load(run)
    names = list(trained.settings.encoding)
    # an option of a package has an entry of its own name, and no file in conf/
    selected = [option] if option in names else list(entries_of(option))
    if missing := [name for name in selected if name not in names]:
        raise UserError(
            f"{run}: trained with {', '.join(names) or 'no encoding'}, not with {missing[0]}"
        )
    step = trained.facts.get("step")
    state = f"trained: {run.name}" + (f", step {step:,}" if isinstance(step, int) else "")
    vocab = min(len(trained.source.vocabulary), len(trained.target.vocabulary))
    return state, rows_of(trained.model, selected, vocab)


def rows_of(model: Transformer, names: list[str], vocab: int) -> dict[str, list[Panel]]:
    """Each entry where it is used first, in the encoder, the decoder or between; by heading."""
    rows: dict[str, list[Panel]] = {}
    for name in names:
        e = next(e for e in model.entries if e.name == name)
        layer = f", layer 1 of {e.dims.layers}" if e.dims.layers > 1 else ""
        layer = layer if e.dims.served_layers is None else f", layer {first_layer(e) + 1}"
        heads = f"{e.dims.heads} heads of {e.dims.head_dim} dimensions"
        if panels := panels_of(e, vocab):
            rows[f"{name}: {e.dims.site}{layer}, {heads}"] = panels
    return rows


def save(rows: dict[str, list[Panel]], title: str, path: Path) -> None:
    wide = max(map(len, rows.values()))
    size = (max(min(PANEL[0] * wide, WIDTH), 5.0), PANEL[1] * len(rows) + 0.6)
    with draw_figure(path, size, font=9) as figure:
        figure.get_layout_engine().set(wspace=0.06)
        figure.suptitle(title, fontsize=11, x=0.01, ha="left", fontweight="bold")
        bands = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for band, (heading, panels) in zip(bands, rows.items(), strict=True):
            band.suptitle(heading, fontsize=9, x=0.01, ha="left")
            grid = band.subplots(1, wide, squeeze=False)[0]
            for axes, panel in zip(grid, panels, strict=False):
                axes.set_title(panel.title, fontsize=9)
                axes.set_xlabel(panel.across)
                if isinstance(panel, MatrixPanel):
                    draw_matrix(band, axes, panel)
                else:
                    draw_curves(axes, panel)
            for axes in grid[len(panels) :]:
                axes.set_axis_off()


def draw_matrix(figure: Any, axes: Any, panel: MatrixPanel) -> None:
    most = float(np.nanmax(np.abs(panel.values))) or 1.0
    limits = {"cmap": SIGNED, "vmin": -most, "vmax": most} if panel.signed else {"cmap": PLAIN}
    image = axes.imshow(panel.values, aspect="auto", interpolation="nearest", **limits)
    axes.locator_params(integer=True)
    axes.set_ylabel(panel.down)
    figure.colorbar(image, ax=axes, label=panel.meaning)


def draw_curves(axes: Any, panel: CurvesPanel) -> None:
    import matplotlib

    count = len(panel.curves)
    shades = matplotlib.colormaps[HEADS](np.linspace(0, 0.9, count)) if count > 1 else [ALONE]
    for (name, curve), shade in zip(panel.curves, shades, strict=True):
        marker = "o" if int(np.isfinite(curve).sum()) == 1 else ""
        label = name if name and count <= LEGEND else None
        axes.plot(panel.distances, curve, color=shade, linewidth=1.3, label=label, marker=marker)
    axes.set_ylabel(panel.meaning)
    values = np.concatenate([curve for _, curve in panel.curves])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if panel.logarithmic:
        axes.set_yscale("log")
    elif low >= 0:
        axes.set_ylim(0, 1.08 * high or 1.0)
    if (panel.logarithmic or low < 0) and high - low < FLAT:
        axes.set_ylim(low - 1, high + 1)
    axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        columns = 2 if count > 4 else 1
        axes.legend(fontsize=7, ncols=columns, frameon=True, framealpha=0.8, edgecolor="none")


main = partial(run, command)

if __name__ == "__main__":
    sys.exit(main())
