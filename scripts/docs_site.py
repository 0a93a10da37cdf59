"""The pages of docs/ as a site: `make docs`, or python -m scripts.docs_site [DIRECTORY].

Some pages are made when it is built, so that they cannot go stale: the start from README.md, the
changelog, how to contribute, the options from conf/ and the schema, and a page with picture and
card for each encoding (`scripts.docs_encodings`). Sphinx does the rest. Nothing is fetched, neither
at build nor at view, and the pages open from a folder.
"""

import inspect
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import nmt
from nmt.config import KINDS, conf_dir
from nmt.overrides.options import described, options_of, path_of, summary
from nmt.overrides.tables import TableReport, TableScale
from scripts import docs_encodings

ROOT = Path(__file__).parent.parent
NAVIGATION = {  # caption in the margin -> its pages
    "Tasks": (
        *("train", "translate", "long-text", "evaluate", "exchange"),
        *("gpu", "commands", "options"),
    ),
    "Encodings": ("encodings", "encoding-cards", "adding-an-encoding"),
    "Findings": (
        "results",
        "longtext/plan",
        "longtext/tables",
        "paper",
        "related-work",
        "speed",
        "log",
    ),
    "Code": ("python", "architecture", "upgrade", "contributing", "changelog"),
}
GROUPS: dict[str, list[type]] = {  # group -> what describes its keys
    **{group: list(kinds.values()) for group, kinds in KINDS.items()},
    "experiment": [TableReport],
    "scale": [TableScale],
    "run": [],
}
SPHINX = {
    "project": "nmt",
    "release": nmt.__version__,
    "extensions": ["myst_parser"],
    "highlight_language": "none",  # a block that names no language is a table or output
    "myst_heading_anchors": 4,  # links to headings, as GitHub makes them
    "html_theme": "furo",
    "html_title": "nmt",
    "html_show_copyright": False,
    "html_copy_source": False,
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
}
STYLE = """
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem; }
.cards a { display: flex; flex-direction: column; padding: .6rem; border-radius: .4rem;
  border: 1px solid var(--color-background-border); text-decoration: none; }
.cards a:hover { border-color: var(--color-brand-primary); }
.cards img { width: 100%; height: 9rem; object-fit: cover; object-position: left top;
  background: white; margin-bottom: .4rem; }
.cards span { font-size: .85em; color: var(--color-foreground-secondary); }
article table.docutils { font-size: .85em; }
article .highlight pre { font-size: .75rem; }
article img { background: white; }
"""


def main(argv: list[str]) -> int:
    """Build the site; returns the exit code, which is not 0 if there was any warning."""
    out = Path(argv[0]) if argv else ROOT / "site"
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "pages")
        gather(sources)
        return build(sources, out, Path(folder, "doctrees"))


def gather(sources: Path) -> None:
    """Lay all pages into one new directory: those of docs/, and those that are made."""
    shutil.copytree(ROOT / "docs", sources)
    shutil.copy(ROOT / "CITATION.cff", sources)
    for name, make in MADE.items():
        (sources / f"{name}.md").write_text(make(), encoding="utf-8")
    docs_encodings.write(sources)
    page = sources / "encodings.md"
    page.write_text(docs_encodings.linked(page.read_text(encoding="utf-8")), encoding="utf-8")
    (sources / "_static").mkdir()
    (sources / "_static" / "site.css").write_text(STYLE, encoding="utf-8")


def build(sources: Path, out: Path, doctrees: Path) -> int:
    """Let Sphinx write HTML; returns its status."""
    from sphinx.application import Sphinx

    app = Sphinx(sources, None, out, doctrees, "html", SPHINX, warningiserror=True)
    app.build()
    return int(app.statuscode)


def start() -> str:
    """README.md, and the navigation of the site."""
    trees = (
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{chr(10).join(pages)}\n```\n"
        for caption, pages in NAVIGATION.items()
    )
    return root_page("README") + "".join(trees)


def root_page(name: str) -> str:
    """A page of the root of the repository, its links as they are on the site."""
    text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\(([A-Z]+)\.md", lambda link: f"]({link[1].lower()}.md", text)


def options() -> str:
    """Every group: its keys with meaning, values and default, and the file of each option."""
    lines = [
        "# Options",
        "",
        "`GROUP=OPTION` chooses a file, `KEY=VALUE` changes a key of it. A default is that of the "
        "option which is taken if none is named; the files say what the others have. The encodings "
        "have [a page of their own](encoding-cards.md).",
        "",
        "## Keys of no group",
        "",
        *_file(conf_dir() / "train.yaml"),
    ]
    for group, schemas in GROUPS.items():
        lines += ["", f"## {group}"]
        for schema in schemas:
            lines += ["", (inspect.getdoc(schema) or "").split("\n")[0], ""]
            lines += ["| key | meaning | values | default |", "|---|---|---|---|"]
            lines += _rows(group, schema)
        for option in options_of(group):
            lines += ["", f"### {group}={option}", "", summary(group, option), ""]
            lines += _file(path_of(group, option))
    return "\n".join(lines) + "\n"


def _rows(group: str, schema: type) -> Iterator[str]:
    """A row for each key of a schema."""
    for key, spec, default in described(group, schema):
        known = spec.metadata
        values = ", ".join(f"`{choice}`" for choice in known["choices"]) or _kind(spec.type)
        bounds = [f"at {end} {known[end]}" for end in ("least", "most") if known[end] is not None]
        shown = "" if default is None else f"`{default}`"
        yield f"| `{key}` | {known['doc']} | {', '.join([values, *bounds])} | {shown} |"


def _kind(kind: Any) -> str:
    """A type in plain words."""
    plain = {str: "text", int: "integer", float: "number", bool: "true or false"}
    if kind in plain:
        return plain[kind]
    inner = [_kind(each) for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) in (list, dict):
        return f"{'list' if get_origin(kind) is list else 'mapping'} of {' to '.join(inner)}"
    return " or ".join([*inner, *["null"] * (type(None) in get_args(kind))]) or kind.__name__


def _file(path: Path) -> Iterator[str]:
    yield "```yaml"
    yield path.read_text(encoding="utf-8").rstrip()
    yield "```"


MADE: dict[str, Callable[[], str]] = {
    "index": start,
    "changelog": lambda: root_page("CHANGELOG"),
    "contributing": lambda: root_page("CONTRIBUTING"),
    "options": options,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
