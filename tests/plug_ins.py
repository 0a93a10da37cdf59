"""Encodings that are not ours: the example of docs/, and made-up distributions that bring some."""

import re
from pathlib import Path

from tests.pages import ROOT as ROOT
from tests.pages import text_of

PAGE = "docs/adding-an-encoding.md"


def files() -> dict[str, str]:
    """The files that docs/adding-an-encoding.md shows, by the path that stands before each."""
    text, shown = text_of(PAGE), {}
    for block in re.finditer(r"^```(?:python|yaml)\n(.*?)^```", text, flags=re.S | re.M):
        paths = re.findall(r"`((?:nmt|conf)/[\w/]+\.(?:py|yaml))`", text[: block.start()])
        shown[paths[-1]] = block[1]
    return shown


def example(name: str = "mine") -> tuple[str, str]:
    """The module and the YAML of an encoding of docs/adding-an-encoding.md."""
    shown = files()
    (module,) = (path for path in shown if path.endswith(f"/{name}.py"))
    return shown[module], shown[f"conf/encoding/{name}.yaml"]


def install(
    folder: Path,
    distribution: str,
    name: str,
    value: str,
    source: str = "",
    group: str = "nmt.encodings",
) -> None:
    """Lay down a distribution with an entry point, and the module it points to, as pip does.

    One that is there already gets this entry point, too.
    """
    metadata = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
    )
    with (metadata / "entry_points.txt").open("a", encoding="utf-8") as entry_points:
        entry_points.write(f"[{group}]\n{name} = {value}\n")
    if source:
        module = value.partition(":")[0]
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
