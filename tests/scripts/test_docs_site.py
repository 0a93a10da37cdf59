"""The site holds all pages, every option and key of the schema, and a card of each encoding."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from nmt.config import KINDS
from nmt.overrides.options import options_of
from scripts import docs_site
from tests.pages import PAGES


def test_the_margin_lists_every_page() -> None:
    written = {Path(page).stem for page in PAGES if page.startswith("docs/")}
    assert len(set(docs_site.ORDER)) == len(docs_site.ORDER)
    assert {*docs_site.ORDER, "index"} == written | set(docs_site.MADE)


def test_the_start_links_from_where_it_stands() -> None:
    text = docs_site.start()
    assert "docs/" not in "".join(re.findall(r"\]\((.*?)\)", text))
    assert "](train.md)" in text and "](demo.png)" in text


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
    assert rows["model.norm"].endswith('| `pre`, `post` | `"pre"` |')
    assert rows["trainer.max_steps"].endswith("integer or null, at least 1 | `null` |")
    assert rows["optim.warmup"].endswith("| `4000` |")  # no key of the default option
    assert rows["tests.joined"].startswith("test set of Tables 3 and 4")
    assert all(row.count(" | ") == 2 for row in rows.values())


def test_each_encoding_has_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_site, "families", lambda: {"several of these": ["none", "alibi"]})
    text = docs_site.cards()
    assert "## Several of these" in text
    about, shown = text.partition("### alibi\n\n")[2].split("\n\n```text\n")
    assert about.startswith("A bias") or "Press" in about
    assert "hooks, encoder" in shown and "cached decoding" in shown and "encoding.alibi" in shown


@pytest.mark.slow
def test_it_builds_without_a_warning_and_asks_no_other_server(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    assert docs_site.main([str(tmp_path)]) == 0
    pages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert {*docs_site.ORDER, "index"} <= set(pages)
    loaded = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//")
    assert [name for name, text in pages.items() if loaded.search(text)] == []
