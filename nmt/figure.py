"""Picture files: their formats, and plots that are the same bytes for the same data."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.errors import UserError

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise UserError if a plot cannot be drawn, before its data is computed."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot {path}: the name must end in one of {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(
            f"--plot {path}: matplotlib is not installed; pip install 'nmt-toolkit[report]'"
        ) from None


@contextmanager
def drawn(path: Path, size: tuple[float, float], font: float) -> Iterator[Any]:
    """A matplotlib figure of `size` inches, written to `path` when the block ends without an error.

    No date is in it, and names within an SVG are not random: equal pictures are equal files.
    """
    import matplotlib
    from matplotlib.figure import Figure

    date = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix.lower())
    with matplotlib.rc_context({"svg.hashsalt": "nmt", "font.size": font}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(path, dpi=150, metadata={date: None} if date else {})
