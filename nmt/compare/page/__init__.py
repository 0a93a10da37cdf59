"""A report as one HTML page that needs nothing else: no network, no font, no script from elsewhere.

The policy in its head allows its own style and its own two scripts, by their hashes, and nothing
more; a browser would refuse whatever a hostile test set might smuggle past the escaping.
"""

import base64
import hashlib
from importlib.resources import files

from nmt.compare.page import about, attention, examples, learning, lengths, summary, tables, vectors
from nmt.compare.page.markup import Markup, tag
from nmt.compare.report import Report

SECTIONS = (
    summary.render,
    tables.render,
    lengths.render,
    learning.render,
    learning.size,
    lengths.undertranslation,
    examples.render,
    attention.render,
    vectors.render,
    about.render,
)


def html(report: Report) -> str:
    """The whole page; the same report gives the same bytes."""
    style = _resource("page.css") + _switches(len(report.systems))
    first, last = _resource("theme.js"), _resource("page.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, first, last)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", report.title),
        tag("style", Markup(style)),
        tag("script", Markup(first)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        summary.header(report),
        summary.navigation(),
        tag("main", [part(report) for part in SECTIONS], id="content", tabindex=-1),
        tag("script", Markup(last)),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _resource(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _switches(systems: int) -> str:
    """Rules by which the boxes of a legend take systems out of the charts beside it."""
    return "".join(
        f'.switched:has(input[value="{s}"]:not(:checked)) .charts .s{s}{{display:none}}\n'
        for s in range(systems)
    )


def _policy(style: str, *scripts: str) -> str:
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
