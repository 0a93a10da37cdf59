"""The pages of the site that show encodings: a grid of pictures, and a page for each encoding."""

import html
import re
from pathlib import Path

from nmt.config import Settings
from nmt.inspect import plot
from nmt.inspect.card import card
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import families, path_of, summary

FOLDER = "encoding"  # of their pages, below the root of the site
PICTURE = "card-{}.png"  # a name of its own: the site keeps all images in one folder
INTRODUCTION = """# All encodings in pictures

Each picture shows what an untrained encoding adds or does, by position or by distance. Click one
for its formula, its facts and its settings.
"""


def write(sources: Path) -> None:
    """Write the page of each encoding, its picture, and the grid of all, below `sources`."""
    (sources / FOLDER).mkdir()
    for names in families().values():
        for name in names:
            settings = experiment_of([f"encoding={name}"]).settings
            plot.draw(settings, name, sources / FOLDER / PICTURE.format(name))
            text = page(name, settings)
            (sources / FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
    (sources / "encoding-cards.md").write_text(grid(), encoding="utf-8")


def grid() -> str:
    """A card for each encoding, by family; they link to the pages of the encodings."""
    lines, every = [INTRODUCTION], []
    for family, names in families().items():
        lines += [f"## {family[0].upper()}{family[1:]}", "", '<div class="cards">']
        lines += [_card(name) for name in names]
        lines += ["</div>", ""]
        every += names
    pages = "\n".join(f"{FOLDER}/{name}" for name in every)
    return "\n".join(lines) + f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def _card(name: str) -> str:
    picture = f'<img src="_images/{PICTURE.format(name)}" alt="" loading="lazy">'
    about = html.escape(summary("encoding", name))
    link = f'<a href="{FOLDER}/{name}.html">'
    return f"{link}{picture}<b>{name}</b><span>{about}</span></a>"


def page(name: str, settings: Settings) -> str:
    """Picture, card and file of an encoding."""
    title, about, *rest = card(name, settings).rstrip().split("\n")
    shown = [line.removeprefix("  ") for line in rest]
    file = path_of("encoding", name).read_text(encoding="utf-8").rstrip()
    return "\n".join(
        [
            *(f"# {title}", "", about.strip(), ""),
            *(f"![{name}]({PICTURE.format(name)})", ""),
            *("```text", f"nmt-train encoding={name}", "```", ""),
            *("## Formula and facts", "", "```text", *shown[1:], "```", ""),
            *(f"## Settings: conf/encoding/{name}.yaml", "", "```yaml", file, "```", ""),
        ]
    )


def linked(text: str) -> str:
    """The page of encodings, with each name in its table of families linked to its page."""
    head, start, rest = text.partition("| family | `encoding=` |\n")
    rows, end, after = rest.partition("\n\n")
    rows = re.sub(r"`(\w+)`", rf"[`\1`]({FOLDER}/\1.md)", rows)
    return head + start + rows + end + after
