"""A report as one HTML page that needs nothing else: no network, no font, no script from elsewhere.

Templates of Jinja2 escape every string, and spell out its invisible characters. The policy in the
page's head allows its own style and script, by their hashes, and nothing more; a
browser would refuse whatever a hostile test set might smuggle past the escaping.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nmt.compare import notation
from nmt.compare.page import charts, conclusion, examples, lengths, panels, svg, text
from nmt.compare.report import (
    ALL,
    REACH,
    SIGNIFICANT,
    UNATTENDED,
    Report,
    rows_of,
)
from nmt.compare.text.notes import budgets
from nmt.config.check import flat

HERE = Path(__file__).parent
OPEN = 10  # examples that are open at first


def html(report: Report) -> str:
    """The whole page; the same report gives the same bytes."""
    style = _resource("page.css") + _switches(len(report.systems))
    script = _resource("page.js")
    policy = _policy(style, script)
    template = environment().get_template("page.html")
    return template.render(report=report, policy=policy, style=Markup(style), script=Markup(script))


@cache
def environment() -> Environment:
    """The templates, and the functions that they call."""
    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = ("fixed", "count", "share", "signed", "chance", "duration", "spread", "bdi")
    templates.filters |= {name: getattr(text, name) for name in filters}
    functions = [
        *(text.bdi, text.listed, svg.classes, svg.dash, svg.mark),
        *(conclusion.conclude, conclusion.best_of, rows_of, budgets),
        *(notation.marks_of, notation.star, notation.beyond),
        *(lengths.score_charts, lengths.signs_of, lengths.bands_of),
        *(charts.learning_charts, notation.over_runs, notation.seeds_note, text.deviating),
        *(examples.chosen, examples.differing, examples.as_read),
        *(panels.attention_panels, labels, sections, settings),
    ]
    templates.globals |= {function.__name__: function for function in functions}
    templates.globals |= {
        "ALL": ALL,
        "REACH": REACH,
        "SIGNIFICANT": SIGNIFICANT,
        "UNATTENDED": UNATTENDED,
        "STAR": notation.STAR,
        "BEYOND": notation.BEYOND,
        "CARET": examples.CARET,
        "OPEN": OPEN,
        "OF_LOSSES": notation.OF_LOSSES,
        "SIGN_TITLES": [title.capitalize() for title in notation.SIGNS.values()],
    }
    return templates


def sections(report: Report) -> dict[str, str]:
    """The sections that have something to show: name of the template, and heading."""
    systems, tests = report.systems, report.tests
    shown = {
        "summary": ("Summary", True),
        "tables": ("Scores", tests),
        "lengths": ("By length", [t for t in tests if t.buckets and t.unit is not None]),
        "learning": ("Learning", charts.learning_charts(report)),
        "size": ("Size and speed", [s for s in systems if s.parameters is not None or s.runs]),
        "undertranslation": (
            "Under-translation",
            [t for t in tests if any(t.losses) or lengths.signs_of(report, t)],
        ),
        "examples": ("Side by side", examples.chosen(report)),
        "attention": ("Attention", report.profiles),
        "about": ("About", True),
    }
    return {name: title for name, (title, data) in shown.items() if data}


def _visible(value: Any) -> Any:
    """A value as a template prints it: nothing for None, and no invisible character."""
    if value is None:
        return ""
    return text.shown(value) if type(value) is str else value


def labels(report: Report, systems: Iterable[int]) -> list[Markup]:
    """The names of some systems."""
    return [text.bdi(report.systems[s].label) for s in systems]


def settings(report: Report) -> Iterator[tuple[str, str]]:
    """Settings that reproduce the numbers: keys and values."""
    bootstrap = {"bootstrap.samples": report.samples, "bootstrap.seed": report.seed}
    for key, value in flat(bootstrap | report.about):
        plain = isinstance(value, str)
        yield key, value if plain else json.dumps(value, ensure_ascii=False, default=str)


def _resource(name: str) -> str:
    return HERE.joinpath(name).read_text(encoding="utf-8")


def _switches(systems: int) -> str:
    """Rules by which the boxes of a legend hide systems in its charts."""
    return "".join(
        f'.switched:has(input[value="{s}"]:not(:checked)) .charts .s{s}{{display:none}}\n'
        for s in range(systems)
    )


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
