"""The pages that people read, README.md and docs/*.md, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]


def text_of(page: str) -> str:
    """A page's text; its name is relative to the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The code of a page's fenced blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.S | re.M)


def examples(page: str) -> list[tuple[str, str]]:
    """Each Python block of a page with the ```text block below it, empty where there is none."""
    pattern = r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?"
    return re.findall(pattern, text_of(page), flags=re.S | re.M)


def commands(page: str) -> list[str]:
    """The lines of a page's shell blocks, continued ones joined, without comments."""
    joined = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in joined.split("\n")]
    return [re.sub(r" +", " ", line) for line in lines if line and line[0] != "#"]


def rooms() -> dict[str, set[str]]:
    """The map of docs/architecture.md: each room, from above, and the rooms that it may import."""
    section = text_of("docs/architecture.md").partition("## The rooms\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([` \w]*)\|$", section, re.M)
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows}


def targets_of_make() -> list[str]:
    """The targets that `make help` lists."""
    return re.findall(r"^([a-z0-9-]+):.*##", text_of("Makefile"), flags=re.M)
