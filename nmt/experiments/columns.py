"""Columns of integers parallel to a text, and their files."""

from nmt.config.settings import Settings
from nmt.errors import UserError

COLUMNS = "NAME=FILE,..."  # what --columns takes


def columns_of_test(settings: Settings) -> dict[str, str]:
    """The columns of the corpus's own test set, by name; a placeholder where none is named."""
    return {name: c.test or f"TEST.{name}" for name, c in settings.data.columns.items()}


def parse_columns(argument: str) -> dict[str, str]:
    """`heads=FILE,order=FILE` -> {"heads": FILE, ...}; raises UserError for anything else."""
    files: dict[str, str] = {}
    for part in argument.split(","):
        name, _, path = part.partition("=")
        if not name or not path or name in files:
            raise UserError(f"--columns {argument}: expected {COLUMNS}, each name once")
        files[name] = path
    return files
