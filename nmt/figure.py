"""Plots that are the same bytes for the same data."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from nmt.errors import Exit, UserError

FORMATS = (".png", ".svg", ".pdf")
MISSING = "matplotlib is not installed; pip install 'nmt-toolkit[report]'"


def require_matplotlib(option: str) -> None:
    """Raise UserError (69) if a plot cannot be drawn, before its data is computed."""
    if not is_installed():
        raise UserError(f"{option}: {MISSING}", Exit.UNAVAILABLE)


def is_installed() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def draw_figure(
    target: Path | TextIO, size: tuple[float, float], font: float, **settings: Any
) -> Iterator[Any]:
    """A matplotlib figure of `size` inches, written when the block ends without an error.

    Into a file, whose name decides the format, or as SVG into a stream; `settings` are
    matplotlib's. No date is in it, and names within an SVG are not random: equal pictures are
    equal files.
    """
    import logging

    logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)  # its cache is no news
    import matplotlib
    from matplotlib.figure import Figure

    form = target.suffix.lower() if isinstance(target, Path) else ".svg"
    date = {".svg": "Date", ".pdf": "CreationDate"}.get(form)
    context: Any = {"svg.hashsalt": "nmt", "font.size": font, **settings}
    with matplotlib.rc_context(context):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        metadata: dict[str, Any] = {date: None} if date else {}
        figure.savefig(target, dpi=150, format=form[1:], metadata=metadata)
