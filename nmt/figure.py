"""The files of pictures: which there can be, and how equal pictures become equal files."""

from pathlib import Path

from nmt.errors import UserError

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise UserError if a plot cannot be made, before any time is spent on what it shows."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot {path}: the name must end in one of {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(
            f"--plot {path}: matplotlib is not installed; pip install 'nmt[report]'"
        ) from None


def undated(path: Path) -> dict[str, None]:
    """Metadata that keep the date out of a picture, so that equal pictures are equal files."""
    key = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix.lower())
    return {key: None} if key else {}
