"""Encodings that are not ours: the example of docs/, and made-up distributions that bring one."""

from pathlib import Path

from tests.pages import ROOT as ROOT
from tests.pages import blocks


def example() -> tuple[str, str]:
    """The module and the YAML that docs/adding-an-encoding.md shows."""
    page = "docs/adding-an-encoding.md"
    (module,), (options,) = blocks(page, "python"), blocks(page, "yaml")
    return module, options


def install(folder: Path, distribution: str, name: str, value: str, source: str = "") -> None:
    """Lay down a distribution with one entry point, and the module it points to, as pip does."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        f"[nmt.encodings]\n{name} = {value}\n", encoding="utf-8"
    )
    if source:
        module = value.partition(":")[0]
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
