"""Made-up distributions with encodings, as pip would lay them into a folder of sys.path."""

from pathlib import Path


def install(folder: Path, distribution: str, name: str, value: str, source: str = "") -> None:
    """Write the metadata of a distribution with one entry point, and the module it points to."""
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
