"""The site holds all pages, every option and key of the schema, and a page of each encoding."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from nmt.config import KINDS
from nmt.overrides.options import options_of
from scripts import docs_encodings, docs_site
from tests.pages import PAGES, text_of

LISTED = [page for pages in docs_site.NAVIGATION.values() for page in pages]


def test_the_margin_lists_every_page() -> None:
    written = {page[len("docs/") : -len(".md")] for page in PAGES if page.startswith("docs/")}
    assert len(set(LISTED)) == len(LISTED)
    assert {*LISTED, "index"} == written | {*docs_site.MADE, "encoding-cards"}
    assert all(page in docs_site.start() for page in LISTED)


def test_the_start_links_from_where_it_stands() -> None:
    text = docs_site.start()
    assert "docs/" not in "".join(re.findall(r"\]\((.*?)\)", text))
    assert "](train.md)" in text and "](demo.png)" in text and "](changelog.md)" in text


def keys(above: str, schema: type) -> Iterator[str]:
    for field in fields(schema):
        yield f"{above}.{field.name}".lstrip(".")
        inner = field.metadata["of"]
        yield from keys(f"{above}.{field.name}.NAME", inner) if inner else ()


def test_the_page_of_options_has_every_key_and_every_option() -> None:
    text = docs_site.options()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*)$", text, flags=re.M))
    for group, kinds in KINDS.items():
        for schema in kinds.values():
            assert set(keys(group, schema)) <= set(rows)
    for group in docs_site.GROUPS:
        assert all(f"### {group}={option}\n" in text for option in options_of(group))
    assert rows["model.dim"] == "width of embeddings and layers | integer, at least 2 | `128` |"
    assert rows["model.norm"].endswith("| `pre`, `post` | `pre` |")
    assert rows["trainer.max_steps"].endswith("integer or null, at least 1 | `null` |")
    assert rows["optim.warmup"].endswith("| `4000` |")  # no key of the default option
    assert rows["tests.joined"].startswith("test set of Tables 3 and 4")
    assert all(row.count(" | ") == 2 for row in rows.values())


def test_each_encoding_has_a_page_and_a_picture_in_the_grid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(docs_encodings, "families", lambda: {"several of these": ["alibi"]})
    docs_encodings.write(tmp_path)
    text = (tmp_path / "encoding/alibi.md").read_text(encoding="utf-8")
    assert text.startswith("# alibi\n\n") and "Press" in text
    assert "hooks, encoder" in text and "cached decoding" in text and "encoding.alibi" in text
    assert "# family: distances, as a bias" in text
    assert (tmp_path / "encoding/card-alibi.png").read_bytes().startswith(b"\x89PNG")
    grid = (tmp_path / "encoding-cards.md").read_text(encoding="utf-8")
    assert "## Several of these" in grid and "\nencoding/alibi\n" in grid
    assert 'href="encoding/alibi.html"' in grid and "_images/card-alibi.png" in grid


def test_the_table_of_families_links_to_the_pages() -> None:
    text = docs_encodings.linked(text_of("docs/encodings.md"))
    assert "[`relative`](encoding/relative.md)" in text and "\n## Combining them" in text


@pytest.mark.slow
def test_it_builds_without_a_warning_and_asks_no_other_server(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    assert docs_site.main([str(tmp_path)]) == 0
    pages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert all((tmp_path / f"{page}.html").exists() for page in [*LISTED, "index"])
    shown = {path.stem for path in (tmp_path / "encoding").glob("*.html")}
    assert shown == set(options_of("encoding"))
    loaded = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//")
    assert [name for name, text in pages.items() if loaded.search(text)] == []
