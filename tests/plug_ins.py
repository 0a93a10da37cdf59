"""Encodings that are not ours: the README's example, and made-up distributions that bring one."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def example() -> tuple[str, str]:
    """The module and the YAML that the README shows under "Adding one"."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("### Adding one\n")[2]
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", text, flags=re.S)[:2]
    assert [language for language, _ in blocks] == ["python", "yaml"]
    return blocks[0][1], blocks[1][1]


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
